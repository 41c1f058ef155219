"""Files of all commands: opened with clear errors, written whole or not at all, local or remote."""

from tf_bert.files.atomic import (
    atomic_folder,
    atomic_writer,
    check_room,
    check_whole,
    copy_file,
    copy_same,
    lines_writer,
    remove_leftovers,
    temporary_folder,
)
from tf_bert.files.errors import reason_in_words, reason_of
from tf_bert.files.opening import (
    exists,
    file_size,
    locked,
    make_folder,
    open_binary,
    reader_at,
    remove_file,
    remove_folder,
)
from tf_bert.files.remote import is_remote

__all__ = [
    "atomic_folder",
    "atomic_writer",
    "check_room",
    "check_whole",
    "copy_file",
    "copy_same",
    "exists",
    "file_size",
    "is_remote",
    "lines_writer",
    "locked",
    "make_folder",
    "open_binary",
    "reader_at",
    "reason_in_words",
    "reason_of",
    "remove_file",
    "remove_folder",
    "remove_leftovers",
    "temporary_folder",
]
