//! The OpenFlow protocol: messages, and the state of a connection.
