//! One test between two peers, and its observable effects.

use super::document::Document;
use super::sockets::Seen;
use serde_json::Value;
use std::sync::Arc;

/// A client's arguments, the same for every implementation.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) client: Vec<&'static str>,
    pub(crate) server: Vec<&'static str>,
    pub(crate) host: &'static str,
    /// If not empty, both ends print text, and the client's text must contain a text of this list.
    pub(crate) plain: &'static [&'static str],
    /// A condition that the sockets must meet at some moment of the test.
    pub(crate) sockets: Option<SocketCheck>,
    /// A condition on the output of both ends.
    pub(crate) documents: Option<DocumentCheck>,
}

type SocketCheck = fn(&Seen) -> Result<(), String>;
type DocumentCheck = Arc<dyn Fn(&Both) -> Result<(), String> + Send + Sync>;

#[derive(Debug)]
pub(crate) struct Both {
    pub(crate) client: Document,
    pub(crate) server: Document,
    /// Whether both ends report rates over the actual time.
    pub(crate) exact: bool,
}

/// Builds a case; `client` has the client's options as on the command line, without the host.
pub(crate) fn case(name: &'static str, client: &'static str) -> Case {
    Case {
        name,
        client: client.split_whitespace().collect(),
        server: Vec::new(),
        host: "127.0.0.1",
        plain: &[],
        sockets: None,
        documents: None,
    }
}

impl Case {
    pub(crate) fn server(mut self, words: &'static str) -> Self {
        self.server = words.split_whitespace().collect();
        self
    }

    pub(crate) fn host(mut self, host: &'static str) -> Self {
        self.host = host;
        self
    }

    pub(crate) fn plain(mut self, prints: &'static [&'static str]) -> Self {
        self.plain = prints;
        self
    }

    pub(crate) fn sockets(mut self, check: SocketCheck) -> Self {
        self.sockets = Some(check);
        self
    }

    pub(crate) fn documents(
        mut self,
        check: impl Fn(&Both) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.documents = Some(Arc::new(check));
        self
    }

    pub(crate) fn has(&self, word: &str) -> bool {
        self.client.contains(&word)
    }

    pub(crate) fn is_over_ipv6(&self) -> bool {
        self.host.contains(':')
    }
}

impl Both {
    pub(crate) fn client_says(&self, pointer: &str) -> &Value {
        self.client.value(pointer)
    }

    pub(crate) fn server_says(&self, pointer: &str) -> &Value {
        self.server.value(pointer)
    }

    /// Checks that both documents have `value` at `pointer`.
    pub(crate) fn ends_say(&self, pointer: &str, value: &Value) -> Result<(), String> {
        let output = [self.client_says(pointer), self.server_says(pointer)];
        expect(output == [value, value], || format!("{pointer} is {output:?}, not {value}"))
    }
}

pub(crate) fn expect(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
