"""The solver of any loss and any sparse penalty, in one process and on columns that workers own."""
