"""The page of the contract is what its rows say."""

from tests.keras_contract.page import PAGE, page


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.keras_contract.page"
