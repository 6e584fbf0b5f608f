use crate::connection::TupleMatch;

/// A request to remove tracked connections: all connections, the connections of a zone, or the
/// connections whose tuples match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnectionFlush {
    pub zone: Option<u16>,
    pub original: Option<TupleMatch>,
    pub reply: Option<TupleMatch>,
}
