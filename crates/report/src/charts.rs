//! Charts drawn without a script, as text that fits in a page, a mail or a test.

pub mod svg;
