"""A comparison for people and for CI: terminal, Markdown, JUnit and one line, all from the same object and the same words."""
