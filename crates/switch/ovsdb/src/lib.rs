//! A client of the Open vSwitch Database (RFC 7047), without I/O. The client takes the place of
//! ovs-vswitchd. The crate has messages, values, rows, a session, the switch that the rows
//! describe, and the columns that the switch writes.
//!
//! | module | for |
//! | --- | --- |
//! | [`documents`] | JSON documents in a stream of bytes |
//! | [`value`], [`database`] | atoms, sets, maps; rows and their changes |
//! | [`schema`] | the tables and columns that the switch reads and writes |
//! | [`session`] | a connection to ovsdb-server: schema, lock, monitor, transactions |
//! | [`topology`], [`interface`] | bridges, ports and controllers that the rows describe |
//! | [`report`] | columns to write, and the operations for those that differ |
//!
//! ```
//! use ovsdb::documents::Documents;
//!
//! let mut documents = Documents::with_limit(1024);
//! documents.receive(br#"{"id":1,"method":"echo","params":[]}"#).unwrap();
//! assert_eq!(documents.take().unwrap().unwrap()["method"], "echo");
//! ```

pub mod database;
pub mod documents;
pub mod interface;
pub mod report;
pub mod schema;
pub mod session;
pub mod topology;
pub mod value;
mod vlans;
