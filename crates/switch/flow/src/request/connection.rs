use crate::connection::TupleMatch;

/// A request to remove tracked connections: all, or those of a zone, or those whose tuples match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnectionFlush {
    pub zone: Option<u16>,
    pub original: Option<TupleMatch>,
    pub reply: Option<TupleMatch>,
}
