//! Charts drawn without a script, as text that a page, a mail or a test can hold.

pub mod svg;
