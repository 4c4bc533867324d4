"""From records to figures, tables and pages."""
