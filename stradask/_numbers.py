"""Which texts are numbers."""


def is_number(text):
    """Tell whether a text is a number; 2020_01, which Python reads as 202001, is none."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in str(text)
