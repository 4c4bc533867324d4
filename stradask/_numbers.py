"""Which texts are numbers."""


def is_number(text):
    """Tell whether Python reads a number in a text."""
    try:
        float(text)
    except ValueError:
        return False
    return True
