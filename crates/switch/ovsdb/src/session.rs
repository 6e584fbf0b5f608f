//! A connection to ovsdb-server (RFC 7047, section 4). The session checks the schema, asks for the
//! lock, monitors the tables, and writes changes, one transaction at a time.

use serde_json::{Value as Json, json};

use crate::database::Database;
use crate::documents::{Documents, Malformed};
use crate::schema::{DATABASE, LOCK, Schema, SchemaError};

/// The client's side of a connection. The caller does the I/O, and passes the current time to each
/// call.
#[derive(Debug)]
pub struct Session {
    documents: Documents,
    output: Vec<u8>,
    schema: Schema,
    database: Database,
    /// The requests that the server has not answered yet, oldest first.
    waiting: Vec<Waiting>,
    next_id: u64,
    is_locked: bool,
    /// Whether the first rows have arrived, including the columns that are read once.
    is_settled: bool,
    /// The tables whose columns are read once, in the order of the operations.
    once: Vec<&'static str>,
    /// The time at which the last bytes from the server arrived.
    heard_ms: u64,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    id: u64,
    kind: Kind,
    /// The time at which the reply is due.
    until_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Schema,
    Lock,
    Monitor,
    /// The request for the columns that are read once.
    Once,
    Transact,
    Echo,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Rows have changed, or have arrived for the first time.
    Changed,
    /// The process has got the lock or has lost the lock.
    Lock,
    /// The schema's major version is higher than the versions that the switch knows.
    NewerSchema,
    /// The last transaction was committed.
    Committed,
    /// The server refused the last transaction.
    Refused(String),
}

/// The reason for which the connection must be closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    #[error("the server sent bytes that are no message of OVSDB")]
    Malformed,
    #[error("the server did not answer within {} s", .0 / 1000)]
    Silent(u64),
    #[error("the server refused {request}: {reason}")]
    Refused { request: &'static str, reason: String },
    #[error("the server ended the monitor: the database was converted or removed")]
    Canceled,
    #[error("the server does not read: more than {} MiB of messages wait", MOST_OUTPUT >> 20)]
    Stuck,
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

impl From<Malformed> for Lost {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl Session {
    /// Begins a session on a new connection.
    #[must_use]
    pub fn begin(now_ms: u64) -> Self {
        let mut session = Self {
            documents: Documents::with_limit(LONGEST_MESSAGE),
            output: Vec::new(),
            schema: Schema::default(),
            database: Database::default(),
            waiting: Vec::new(),
            next_id: 0,
            is_locked: false,
            is_settled: false,
            once: Vec::new(),
            heard_ms: now_ms,
        };
        session.request(Kind::Schema, "get_schema", &json!([DATABASE]), now_ms);
        session
    }

    /// Takes bytes from the server.
    pub fn receive(&mut self, bytes: &[u8], now_ms: u64) -> Result<Vec<Event>, Lost> {
        self.heard_ms = now_ms;
        self.documents.receive(bytes)?;
        let mut events = Vec::new();
        while let Some(document) = self.documents.take()? {
            self.message(&document, now_ms, &mut events)?;
        }
        if self.output.len() > MOST_OUTPUT {
            return Err(Lost::Stuck);
        }
        Ok(events)
    }

    /// Sends an echo request if the server has been silent. Ends the session if the server does not
    /// answer.
    pub fn tick(&mut self, now_ms: u64) -> Result<(), Lost> {
        if let Some(late) = self.waiting.iter().find(|waiting| waiting.until_ms <= now_ms) {
            return Err(Lost::Silent(patience(late.kind)));
        }
        let is_idle = now_ms.saturating_sub(self.heard_ms) >= IDLE_MS;
        if is_idle && !self.waiting.iter().any(|waiting| waiting.kind == Kind::Echo) {
            self.request(Kind::Echo, "echo", &json!([]), now_ms);
        }
        Ok(())
    }

    /// Returns the bytes to send to the server. The caller removes the bytes that it has sent.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    #[must_use]
    pub fn database(&self) -> &Database {
        &self.database
    }

    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Whether the rows have arrived, and this process has the lock.
    #[must_use]
    pub fn may_act(&self) -> bool {
        self.is_settled && self.is_locked
    }

    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// Whether a transaction has no reply yet.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.kind == Kind::Transact)
    }

    /// Sends operations, each as JSON text, as one transaction. The transaction fails if this
    /// process has lost the lock.
    pub fn transact(&mut self, operations: &[String], now_ms: u64) {
        let lock = json!({ "op": "assert", "lock": LOCK });
        let mut parameters = format!("[\"{DATABASE}\",{lock}");
        for operation in operations {
            parameters.push(',');
            parameters.push_str(operation);
        }
        parameters.push(']');
        self.request_text(Kind::Transact, "transact", &parameters, now_ms);
    }

    fn request(&mut self, kind: Kind, method: &str, parameters: &Json, now_ms: u64) {
        self.request_text(kind, method, &parameters.to_string(), now_ms);
    }

    fn request_text(&mut self, kind: Kind, method: &str, parameters: &str, now_ms: u64) {
        let id = self.next_id;
        self.next_id += 1;
        self.waiting.push(Waiting { id, kind, until_ms: now_ms + patience(kind) });
        let message = format!("{{\"id\":{id},\"method\":\"{method}\",\"params\":{parameters}}}");
        self.output.extend_from_slice(message.as_bytes());
    }

    fn send(&mut self, message: &Json) {
        self.output.extend_from_slice(message.to_string().as_bytes());
    }

    fn message(
        &mut self,
        message: &Json,
        now_ms: u64,
        events: &mut Vec<Event>,
    ) -> Result<(), Lost> {
        let id = message.get("id");
        let Some(method) = message.get("method").filter(|method| !method.is_null()) else {
            return self.reply(message, now_ms, events);
        };
        let parameters = message.get("params").unwrap_or(&Json::Null);
        match method.as_str().ok_or(Lost::Malformed)? {
            "echo" => self.send(&json!({
                "id": id, "result": parameters, "error": null })),
            "update" => {
                let [_, updates] = parameters.as_array().map_or(&[][..], Vec::as_slice) else {
                    return Err(Lost::Malformed);
                };
                self.database.apply(updates).map_err(|_| Lost::Malformed)?;
                note(events, Event::Changed);
            }
            word @ ("locked" | "stolen") => self.set_lock(word == "locked", events),
            "monitor_canceled" => return Err(Lost::Canceled),
            // The server calls a method that this client does not implement.
            _ if id.is_some_and(|id| !id.is_null()) => self.send(&json!({
                "id": id, "result": null, "error": "unknown method" })),
            _ => {}
        }
        Ok(())
    }

    fn reply(&mut self, message: &Json, now_ms: u64, events: &mut Vec<Event>) -> Result<(), Lost> {
        let id = message.get("id").and_then(Json::as_u64).ok_or(Lost::Malformed)?;
        let place = self.waiting.iter().position(|waiting| waiting.id == id);
        let kind = self.waiting.remove(place.ok_or(Lost::Malformed)?).kind;
        let result = message.get("result").unwrap_or(&Json::Null);
        if let Some(error) = message.get("error").filter(|error| !error.is_null()) {
            let reason = reason(error);
            let request = match kind {
                Kind::Schema => "its schema (is Open_vSwitch its database?)",
                Kind::Lock => "the lock",
                Kind::Monitor => "the monitor",
                Kind::Once => "the numbers of ports",
                Kind::Transact => {
                    events.push(Event::Refused(reason));
                    return Ok(());
                }
                Kind::Echo => return Ok(()),
            };
            return Err(Lost::Refused { request, reason });
        }
        match kind {
            Kind::Echo => {}
            Kind::Schema => {
                self.schema = Schema::parse(result)?;
                if self.schema.is_newer() {
                    events.push(Event::NewerSchema);
                }
                self.request(Kind::Lock, "lock", &json!([LOCK]), now_ms);
                let requests = self.schema.monitor_requests();
                let requests = json!([DATABASE, "weir", requests]);
                self.request(Kind::Monitor, "monitor", &requests, now_ms);
                // This request follows the monitor request, so that the rows of the columns are
                // known when the values arrive.
                let (tables, operations): (Vec<_>, Vec<_>) =
                    self.schema.once_requests().into_iter().unzip();
                self.once = tables;
                let mut parameters = vec![json!(DATABASE)];
                parameters.extend(operations);
                self.request(Kind::Once, "transact", &parameters.into(), now_ms);
            }
            Kind::Lock => {
                let locked = result.get("locked").and_then(Json::as_bool);
                self.set_lock(locked.ok_or(Lost::Malformed)?, events);
            }
            Kind::Monitor => {
                self.database.apply(result).map_err(|_| Lost::Malformed)?;
                note(events, Event::Changed);
            }
            Kind::Once => {
                for (at, table) in self.once.iter().enumerate() {
                    let rows = result.get(at).and_then(|result| result.get("rows"));
                    let rows = rows.ok_or(Lost::Malformed)?;
                    self.database.complete(table, rows).map_err(|_| Lost::Malformed)?;
                }
                self.is_settled = true;
            }
            Kind::Transact => {
                let results = result.as_array().ok_or(Lost::Malformed)?;
                let error = results.iter().find_map(|result| result.get("error"));
                events.push(match error.filter(|error| !error.is_null()) {
                    Some(error) => {
                        let details = results.iter().find_map(|result| result.get("details"));
                        Event::Refused(reason(details.unwrap_or(error)))
                    }
                    None => Event::Committed,
                });
            }
        }
        Ok(())
    }

    fn set_lock(&mut self, is_locked: bool, events: &mut Vec<Event>) {
        self.is_locked = is_locked;
        note(events, Event::Lock);
    }
}

/// Adds `event` unless `events` already has it.
fn note(events: &mut Vec<Event>, event: Event) {
    if !events.contains(&event) {
        events.push(event);
    }
}

fn reason(error: &Json) -> String {
    let text = ["details", "error"].iter().find_map(|key| error.get(key)?.as_str());
    match text.or(error.as_str()) {
        Some(text) => units::foreign(text).to_string(),
        None => units::foreign(error).to_string(),
    }
}

/// Maximum wait for a reply. For a large database, the server needs more time for the first rows.
fn patience(kind: Kind) -> u64 {
    match kind {
        Kind::Monitor | Kind::Once | Kind::Transact => 60_000,
        Kind::Schema | Kind::Lock | Kind::Echo => 10_000,
    }
}

/// Maximum length of a message. A message about ten thousand ports has about ten megabytes.
const LONGEST_MESSAGE: usize = 128 << 20;
const MOST_OUTPUT: usize = 128 << 20;
/// After this time without a message from the server, the switch sends an echo request, as
/// ovs-vswitchd does.
const IDLE_MS: u64 = 5_000;

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
