"""How Vigia's Python programs write numbers, tables and colours for people.

Numbers have three significant digits and the unit that suits them, from
``vigia_text.numbers``; columns are aligned by display width, from
``vigia_text.tables``; what a terminal can show, and whether somebody wants
colours, says ``vigia_text.terminal``.
"""
