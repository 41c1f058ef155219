"""Flags as the original's command lines had them (``--x``, ``--nox``, ``--x=True``), without its global state.

The original parsed flags with absl into one global object and ignored unknown ones. Here each command owns a `Flags`
object over absl's parser, unknown or stray arguments are refused with the nearest right name, and a user's mistake ends
in one line and a non-zero exit status instead of a traceback.
"""

import difflib
import functools
import os
import signal
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any

from absl import flags as absl_flags

from tf_bert.options import options_of
from tf_bert.training.stopping import Stopped

USAGE_ERROR = 2
FAILED = 1
INTERRUPTED = 130
STOPPED = 75  # EX_TEMPFAIL: ended by SIGTERM, saved; the same command goes on

# What the library raises for a user's mistake. Anything else is our own fault and keeps its traceback.
_USER_ERRORS = (ValueError, KeyError, OSError, ImportError)


class _SaysWhatItExpects:
    """A parser whose error says what was expected, whatever Python says (a mix-in)."""

    def parse(self, argument):
        """The value; that of a number which is none ("nan") lies within no bounds."""
        try:
            value = super().parse(argument)
        except (TypeError, ValueError):
            value = None
        if value is None or value != value:
            expected = self.syntactic_help
            raise ValueError(f"expected {'a ' * expected.startswith(('whole', 'number'))}{expected}")
        return value


class _Integer(_SaysWhatItExpects, absl_flags.IntegerParser):
    number_article, number_name = "a", "whole number"
    syntactic_help = "a whole number"


class _Float(_SaysWhatItExpects, absl_flags.FloatParser):
    pass


class _Boolean(_SaysWhatItExpects, absl_flags.BooleanParser):
    syntactic_help = "true or false"


_KINDS = {int: "integer", float: "float", bool: "boolean", str: "string"}  # type of an option -> method of Flags


class Flags:
    """The flags of one command.

    Args:
        name: the command's name, as in ``tf-bert NAME``.
        description: shown above the flags by ``--help``; give an example that can be run.

    Example:
        >>> flags = Flags("greet", "Says hello.")
        >>> flags.string("who", "world", "Whom to greet.")
        >>> flags.boolean("loud", False, "Whether to shout.")
        >>> values = flags.parse(["--who=Ada", "--loud"])
        >>> values.who, values.loud
        ('Ada', True)
    """

    def __init__(self, name: str, description: str):
        self.name = name
        self.description = textwrap.dedent(description).strip()
        self._values = absl_flags.FlagValues()
        self._values.set_gnu_getopt(True)
        self._required: list[str] = []
        self._order: list[str] = []
        self._positional: list[str] = []
        self._refused: dict[str, str] = {}
        self._harmless: dict[str, Callable[[str], bool]] = {}
        self._passed_on: tuple[str, str] | None = None

    def _added(self, name: str, required: bool) -> None:
        self._order.append(name)
        if required:
            self._required.append(name)

    def string(self, name: str, default: str | None, help: str, *, required: bool = False) -> None:
        """Adds a flag that takes text."""
        absl_flags.DEFINE_string(name, default, help, flag_values=self._values)
        self._added(name, required)

    def boolean(self, name: str, default: bool | None, help: str) -> None:
        """Adds a flag given as ``--name``, ``--noname`` or ``--name=true|false``."""
        absl_flags.DEFINE_boolean(name, default, help, flag_values=self._values)
        self._values[name].parser = _Boolean()
        self._added(name, False)

    def integer(
        self,
        name: str,
        default: int | None,
        help: str,
        *,
        required: bool = False,
        minimum: int | None = None,
        maximum: int | None = None,
    ) -> None:
        """Adds a flag that takes a whole number between ``minimum`` and ``maximum``."""
        absl_flags.DEFINE(
            _Integer(minimum, maximum), name, default, help, self._values, absl_flags.ArgumentSerializer()
        )
        self._added(name, required)

    def float(
        self,
        name: str,
        default: float | None,
        help: str,
        *,
        required: bool = False,
        minimum: float | None = None,
        maximum: float | None = None,
    ) -> None:
        """Adds a flag that takes a number between ``minimum`` and ``maximum``."""
        # As floats, because absl keeps one parser for equal bounds, and 0 and 0.0 are equal: a message would vary.
        parser = _Float(*(bound if bound is None else float(bound) for bound in (minimum, maximum)))
        absl_flags.DEFINE(parser, name, default, help, self._values, absl_flags.ArgumentSerializer())
        self._added(name, required)

    def enum(
        self, name: str, default: str | None, choices: Sequence[str], help: str, *, required: bool = False
    ) -> None:
        """Adds a flag that takes one of ``choices``."""
        absl_flags.DEFINE_enum(name, default, list(choices), help, flag_values=self._values)
        self._values[name].help = help  # absl puts the choices before it, and so does help()
        self._added(name, required)

    def add_options(self, cls: type, skip: Collection[str] = ()) -> None:
        """Adds a flag for each option of a `tf_bert.options.options_class`.

        Args:
            cls: the class; `options_from` makes it of the values.
            skip: options that get no flag.
        """
        for each in options_of(cls):
            if each.name in skip:
                continue
            if each.choices:
                self.enum(each.name, each.default, each.choices, each.help)
                continue
            bounds = {"minimum": each.minimum, "maximum": each.maximum}
            bounds = {name: bound for name, bound in bounds.items() if bound is not None}
            getattr(self, _KINDS[each.type])(each.name, each.default, each.help, **bounds)

    def positional(self, *names: str) -> None:
        """Lets flags be given as bare words too, in this order: ``tf-bert checkpoints show NAME``."""
        self._positional.extend(names)

    def refuse(self, name: str, reason: str, harmless: Callable[[str], bool] = lambda value: False) -> None:
        """Names a flag of the original that is refused, with what to use instead.

        Args:
            name: of the flag.
            reason: what to use instead.
            harmless: whether a value would change nothing; the flag is accepted with it.
        """
        self._refused[name] = reason
        self._harmless[name] = harmless

    def parse(self, argv: Sequence[str]) -> absl_flags.FlagValues:
        """Parses arguments (without the program's name).

        Returns:
            An object with one attribute per flag.

        Raises:
            UsageError: for an unknown flag (the nearest right one is named), a stray argument, a bad value, or a
                required flag that is missing.
        """
        refused = {"undefok": "a flag that is not known is never ignored", **self._refused}
        kept = []
        for argument in argv:
            given, _, value = argument.lstrip("-").partition("=")
            name = given if given in refused else given.removeprefix("no")
            if not argument.startswith("-") or name not in refused:
                kept.append(argument)
            elif not self._harmless.get(name, lambda value: False)("False" if name != given else value):
                raise UsageError(f"--{given} is not accepted: {refused[name]}")
        argv = kept
        self._values.unparse_flags()  # back to the defaults: a program may call a command's main several times
        others, when = self._passed_on or (None, None)
        passes_on = any(argument.lstrip("-").split("=", 1)[0] == when for argument in argv)
        try:
            stray = self._values(["tf-bert", *argv], known_only=passes_on)[1:]
            if passes_on:
                self._values[others].value, stray = stray, []
            for name in self._positional:
                if stray and self._values[name].value is None:
                    self._values[name].parse(stray.pop(0))
        except absl_flags.UnrecognizedFlagError as error:
            raise UsageError(f"unknown flag --{error.flagname}{self._nearest(error.flagname)}") from None
        except absl_flags.Error as error:
            raise UsageError(str(error).removeprefix("ERROR:: ")) from None
        if stray:
            raise UsageError(
                f"stray argument {stray[0]!r}: every option is written --name=value{self._nearest(stray[0])}"
            )
        missing = [name for name in self._required if self._values[name].value in (None, "")]
        if missing:
            raise UsageError("missing " + ", ".join(f"--{name}" for name in missing) + " (--help explains each flag)")
        return self._values

    def pass_on(self, name: str, when: str) -> None:
        """Leaves flags that the command does not know to another program, which is to check them.

        Args:
            name: of the list that they are put into.
            when: the flag that has to be given; without it they are refused as ever.
        """
        absl_flags.DEFINE_list(name, [], "", flag_values=self._values)
        self._passed_on = name, when

    def _nearest(self, name: str) -> str:
        names = [
            form
            for known in self._order
            for form in (known, "no" + known)
            if form == known or self._values[known].boolean
        ]
        # A prefix beats spelling distance: the original's README itself says --do_lower for --do_lower_case.
        wanted = name.split("=", 1)[0].replace("-", "_").strip("_")
        near = [known for known in names if wanted and known.startswith(wanted)] or difflib.get_close_matches(
            wanted, names, 1, 0.6
        )
        return f"; did you mean --{near[0]}?" if near else " (--help lists the flags)"

    def help(self) -> str:
        """The text that ``--help`` prints."""
        words = "".join(f" {name.upper()}" for name in self._positional)
        lines = [f"usage: tf-bert {self.name}{words} --flag=value ...", "", self.description, "", "flags:"]
        for name in self._order:
            flag = self._values[name]
            if flag.boolean:
                shown = f"--[no]{name}"
            elif isinstance(flag, absl_flags.EnumFlag):
                shown = f"--{name}={'|'.join(flag.parser.enum_values)}"
            else:
                shown = f"--{name}=" + {"int": "N", "float": "X"}.get(flag.flag_type(), "TEXT")
            note = "required" if name in self._required else f"default: {flag.default!r}".replace("'", "")
            if flag.default is None and name not in self._required:
                note = "no default"
            lines.append(f"  {shown}  ({note})")
            lines.extend(textwrap.wrap(flag.help, 100, initial_indent="      ", subsequent_indent="      "))
        for name, reason in self._refused.items():
            lines.append(f"  --{name}  (refused)")
            lines.extend(textwrap.wrap(reason, 100, initial_indent="      ", subsequent_indent="      "))
        return "\n".join(lines) + "\n"

    def run(self, command: Callable[[absl_flags.FlagValues], int | None], argv: Sequence[str] | None = None) -> int:
        """Parses the arguments, calls ``command(flags)`` and turns a user's mistake into one line.

        Args:
            command: does the work; may return an exit status.
            argv: arguments without the program's name; ``sys.argv[1:]`` by default.

        Returns:
            The exit status: 0, 1 after a failure, 2 after a mistake in the flags, 130 after Ctrl-C.
        """
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # a command's output is not the place for TensorFlow's notes
        argv = sys.argv[1:] if argv is None else list(argv)
        if any(argument in ("--help", "-h", "-help") for argument in argv):
            print(self.help(), end="")
            return 0
        with warnings.catch_warnings():
            # A single key has all the attention, as it should; Keras warns of each.
            warnings.filterwarnings("ignore", "You are using a softmax over axis")
            warnings.showwarning = functools.partial(self._show_warning, warnings.showwarning)
            return self._guarded(command, argv)

    def _guarded(self, command: Callable[[absl_flags.FlagValues], int | None], argv: Sequence[str]) -> int:
        try:
            return command(self.parse(argv)) or 0
        except UsageError as error:
            return self._fail(str(error), USAGE_ERROR)
        except KeyboardInterrupt:
            return self._fail("interrupted", INTERRUPTED)
        except Stopped as stopped:
            print(f"tf-bert {self.name}: {stopped}")
            return INTERRUPTED if stopped.signal == signal.SIGINT else STOPPED
        except Terminated:
            print(f"tf-bert {self.name}: SIGTERM came: what is saved stays, and the same command goes on from there")
            return STOPPED
        except BrokenPipeError:  # the reader (such as `head`) has gone; nothing is wrong here
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except _USER_ERRORS as error:
            if os.environ.get("TF_BERT_TRACEBACK"):
                raise
            message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
            return self._fail(message or type(error).__name__, FAILED)
        except Exception as error:  # TensorFlow's, in making a model or a data set: those of a step are named there
            if "Collective ops is aborted by" not in str(error) or os.environ.get("TF_BERT_TRACEBACK"):
                raise
            from tf_bert.trainer.execution import worker_gone

            return self._fail(str(worker_gone(error)), FAILED)
        finally:
            if signal.getsignal(signal.SIGTERM) is _terminate:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _show_warning(self, otherwise: Callable, message, category, *where, **options) -> None:
        """Shows what the library warns a user of in one line; other warnings as Python does."""
        if category is UserWarning:
            print(f"tf-bert {self.name}: warning: {' '.join(str(message).split())}", file=sys.stderr, flush=True)
        else:
            otherwise(message, category, *where, **options)

    def _fail(self, message: str, status: int) -> int:
        print(f"tf-bert {self.name}: error: {' '.join(message.split())}", file=sys.stderr)
        return status


def options_from(values: absl_flags.FlagValues, cls: type, **others: Any) -> Any:
    """Makes an options class of parsed flags.

    Args:
        values: from `Flags.parse`.
        cls: a class that `Flags.add_options` made flags from.
        **others: options that no flag says, or not that way.
    """
    given = {each.name: values[each.name].value for each in options_of(cls) if each.name in values}
    return cls(**given | others)


def is_empty(value: str) -> bool:
    """Whether a flag is given without a value, or with the original's default of none."""
    return value in ("", "None")


def is_false(value: str) -> bool:
    """Whether a value of a boolean flag says no."""
    return value.lower() in ("false", "f", "0", "no", "n")


class Terminated(SystemExit):
    """SIGTERM came where nothing is trained."""


def _terminate(number, frame) -> None:
    raise Terminated(STOPPED)


def end_on_sigterm() -> None:
    """From now on SIGTERM ends a command with a line and status `STOPPED`; training has a handler of its own."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)


class UsageError(ValueError):
    """A mistake in the command line itself: the exit status is 2."""
