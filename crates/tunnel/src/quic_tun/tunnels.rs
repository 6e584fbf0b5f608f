//! The open tunnels of an end, and `GET /tunnels` with quic-tun's keys.

use super::classify::{self, Classified, Protocol, classify};
use crate::status::{MetricsListener, is_addressed, serve_http};
use host::{HttpResponse, MetricsAddress};
use rand::random;
use serde::Serialize;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use x509_cert::der::DateTime;

/// The address of quic-tun's API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelsAt {
    pub address: MetricsAddress,
    /// Whether the process must end if it cannot listen at `address`. False for the default
    /// address.
    pub is_required: bool,
}

/// The open tunnels of one end.
#[derive(Debug)]
pub struct Tunnels {
    is_server: bool,
    began: Instant,
    records: Mutex<Vec<Weak<Record>>>,
}

/// One open tunnel, listed until this value is dropped.
#[derive(Debug)]
pub struct Record {
    is_server: bool,
    uuid: [u8; 16],
    stream: u64,
    /// The application of a client, or the target of a server.
    local: String,
    remote: SocketAddr,
    created: String,
    server: Direction,
    client: Direction,
    /// Whether further bytes may still identify the protocol or its properties.
    is_open: AtomicBool,
    heads: Mutex<Heads>,
}

/// The bytes that one side of the tunnel has sent.
#[derive(Debug, Default)]
struct Direction {
    bytes: AtomicU64,
    /// `counted`: the value of `bytes` at the last full second. `rate`: the bytes of the last full
    /// second.
    counted: AtomicU64,
    rate: AtomicU64,
}

#[derive(Debug, Default)]
struct Heads {
    server: Vec<u8>,
    client: Vec<u8>,
    protocol: Option<Protocol>,
}

/// The members of a tunnel's JSON object, in quic-tun's order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    uuid: String,
    stream_id: u64,
    endpoint: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    client_app_addr: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    server_app_addr: &'a str,
    remote_endpoint_addr: String,
    created_at: &'a str,
    server_total_bytes: u64,
    client_total_bytes: u64,
    server_send_rate: String,
    client_send_rate: String,
    protocol: &'a str,
    protocol_properties: Option<&'a Protocol>,
}

impl Tunnels {
    pub fn new(is_server: bool) -> Arc<Self> {
        Arc::new(Self { is_server, began: Instant::now(), records: Mutex::default() })
    }

    /// Lists a tunnel until the result is dropped. `local` is the application of a client or the
    /// target of a server.
    pub(crate) fn open(&self, stream: u64, local: String, remote: SocketAddr) -> Arc<Record> {
        let mut uuid: [u8; 16] = random();
        // Mark the UUID as version 4 (RFC 9562, 5.4).
        uuid[6] = uuid[6] & 0x0f | 0x40;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        let record = Arc::new(Record {
            is_server: self.is_server,
            uuid,
            stream,
            local,
            remote: SocketAddr::new(remote.ip().to_canonical(), remote.port()),
            created: self.now(),
            server: Direction::default(),
            client: Direction::default(),
            is_open: AtomicBool::new(true),
            heads: Mutex::default(),
        });
        let mut records = lock(&self.records);
        if records.len() == records.capacity() {
            records.retain(|record| record.strong_count() > 0);
        }
        records.push(Arc::downgrade(&record));
        record
    }

    /// Computes the rates once a second. Runs for ever.
    pub(crate) async fn keep_rates(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SECOND).await;
            for record in self.records() {
                record.server.second();
                record.client.second();
            }
        }
    }

    pub(crate) fn to_json(&self) -> String {
        let records = self.records();
        let each: Vec<String> = records.iter().map(|record| record.to_json()).collect();
        format!("[{}]", each.join(","))
    }

    fn records(&self) -> Vec<Arc<Record>> {
        let mut records = lock(&self.records);
        records.retain(|record| record.strong_count() > 0);
        records.iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the time in Go's format, which ends with the seconds since the start (`m=+1.5`).
    fn now(&self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let Ok(date) = DateTime::from_unix_duration(Duration::from_secs(now.as_secs())) else {
            return String::new();
        };
        format!(
            "{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:09} +0000 UTC m=+{:.9}",
            date.year(),
            date.month(),
            date.day(),
            date.hour(),
            date.minutes(),
            date.seconds(),
            now.subsec_nanos(),
            self.began.elapsed().as_secs_f64(),
        )
    }
}

impl Record {
    /// Counts bytes that the local stream has sent into the tunnel.
    pub(crate) fn sent(&self, bytes: &[u8]) {
        let from = if self.is_server { &self.server } else { &self.client };
        from.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if self.is_open.load(Ordering::Relaxed) {
            self.look(self.is_server, &[IoSlice::new(bytes)], bytes.len());
        }
    }

    /// Counts the first `count` bytes of `slices`, which this end wrote to the local stream.
    pub(crate) fn received(&self, slices: &[IoSlice<'_>], count: usize) {
        let from = if self.is_server { &self.client } else { &self.server };
        from.bytes.fetch_add(count as u64, Ordering::Relaxed);
        if self.is_open.load(Ordering::Relaxed) {
            self.look(!self.is_server, slices, count);
        }
    }

    /// Keeps the first bytes of each side and classifies them, until the classification is final.
    fn look(&self, is_of_server: bool, slices: &[IoSlice<'_>], count: usize) {
        let mut heads = lock(&self.heads);
        let head = if is_of_server { &mut heads.server } else { &mut heads.client };
        let mut left = count.min(classify::HEAD.saturating_sub(head.len()));
        for slice in slices {
            let part = &slice[..slice.len().min(left)];
            head.extend_from_slice(part);
            left -= part.len();
        }
        let Classified { protocol, is_final } = classify(&heads.client, &heads.server);
        let protocol = protocol.or(heads.protocol.take());
        if is_final {
            *heads = Heads::default();
            self.is_open.store(false, Ordering::Relaxed);
        }
        heads.protocol = protocol;
    }

    fn to_json(&self) -> String {
        let heads = lock(&self.heads);
        let local = self.local.as_str();
        let (endpoint, client, server) =
            if self.is_server { ("server", "", local) } else { ("client", local, "") };
        let protocol = heads.protocol.as_ref();
        let shown = Shown {
            uuid: classify::uuid(&self.uuid),
            stream_id: self.stream,
            endpoint,
            client_app_addr: client,
            server_app_addr: server,
            remote_endpoint_addr: self.remote.to_string(),
            created_at: &self.created,
            server_total_bytes: self.server.bytes.load(Ordering::Relaxed),
            client_total_bytes: self.client.bytes.load(Ordering::Relaxed),
            server_send_rate: self.server.rate(),
            client_send_rate: self.client.rate(),
            protocol: protocol.map_or("", Protocol::name),
            protocol_properties: protocol,
        };
        serde_json::to_string(&shown).unwrap_or_default()
    }
}

impl Direction {
    fn second(&self) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let before = self.counted.swap(bytes, Ordering::Relaxed);
        self.rate.store(bytes.saturating_sub(before), Ordering::Relaxed);
    }

    fn rate(&self) -> String {
        format!("{:.2} kB/s", self.rate.load(Ordering::Relaxed) as f64 / 1024.0)
    }
}

/// Serves `GET /tunnels` for ever.
pub(crate) async fn serve(listener: MetricsListener, tunnels: Arc<Tunnels>) {
    let rates = Arc::clone(&tunnels).keep_rates();
    let served = serve_http(listener, Arc::new(move |request| response(request, &tunnels)));
    tokio::join!(rates, served);
}

fn response(request: &[u8], tunnels: &Tunnels) -> HttpResponse {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, path) = (words.next(), words.next().unwrap_or_default());
    let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
    // A web page could reach this machine by a name in the page's own domain (DNS rebinding):
    // refuse names.
    if !is_addressed(request) {
        return refused("403 Forbidden", "Please use the address of this server, not a name");
    }
    match (method, path) {
        (_, path) if path != b"/tunnels" => refused("404 Not Found", "Please use /tunnels"),
        (Some(b"GET"), _) => HttpResponse::json("200 OK", tunnels.to_json()),
        _ => refused("405 Method Not Allowed", "Please use GET request method"),
    }
}

fn refused(status: &'static str, why: &str) -> HttpResponse {
    HttpResponse::json(status, serde_json::json!({ "message": why }).to_string())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_tunnel_is_listed_with_quic_tuns_json_keys_in_their_order() {
        let tunnels = Tunnels::new(true);
        let remote = "[::ffff:172.18.29.161]:46706".parse().unwrap();
        let record = tunnels.open(4, "172.18.31.97:22".to_owned(), remote);
        record.sent(b"SSH-2.0-server");
        record.received(&[IoSlice::new(b"SSH-"), IoSlice::new(b"2.0-more")], 6);
        record.server.second();
        let json: serde_json::Value = serde_json::from_str(&tunnels.to_json()).unwrap();
        let object = json[0].as_object().unwrap();
        let keys: Vec<&str> = object.keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            [
                "uuid",
                "streamId",
                "endpoint",
                "serverAppAddr",
                "remoteEndpointAddr",
                "createdAt",
                "serverTotalBytes",
                "clientTotalBytes",
                "serverSendRate",
                "clientSendRate",
                "protocol",
                "protocolProperties"
            ]
        );
        assert_eq!(object["remoteEndpointAddr"], "172.18.29.161:46706");
        assert_eq!(
            (&object["serverTotalBytes"], &object["clientTotalBytes"]),
            (&14.into(), &6.into())
        );
        assert_eq!(object["serverSendRate"], "0.01 kB/s");
        assert_eq!((&object["protocol"], &object["protocolProperties"]), (&"".into(), &().into()));
        let (uuid, created) =
            (object["uuid"].as_str().unwrap(), object["createdAt"].as_str().unwrap());
        assert!(uuid.len() == 36 && uuid.as_bytes()[14] == b'4', "{uuid}");
        assert!(created.contains(" +0000 UTC m=+0."), "{created}");
        drop(record);
        assert_eq!(tunnels.to_json(), "[]");
    }

    #[test]
    fn a_protocol_is_recognised_from_the_first_bytes_of_either_end() {
        for is_server in [false, true] {
            let tunnels = Tunnels::new(is_server);
            let record = tunnels.open(0, String::new(), "10.0.0.1:1".parse().unwrap());
            let link = b"REDQ\x02\0\0\0\x02\0\0\0\x12\0\0\0\xd0\x30\x6d\x75\x09\0";
            match is_server {
                true => record.received(&[IoSlice::new(&link[..3]), IoSlice::new(&link[3..])], 22),
                false => record.sent(link),
            }
            let json: serde_json::Value = serde_json::from_str(&tunnels.to_json()).unwrap();
            assert_eq!(json[0]["protocol"], "spice");
            assert_eq!(json[0]["protocolProperties"]["channelType"], "usbredir");
            assert!(!record.is_open.load(Ordering::Relaxed));
        }
    }

    #[test]
    fn only_get_tunnels_with_an_address_as_host_is_answered() {
        let tunnels = Tunnels::new(false);
        let status = |request: &str| {
            let response = response(request.as_bytes(), &tunnels).to_string();
            response.split(' ').nth(1).unwrap().to_owned()
        };
        for (request, expected) in [
            ("GET /tunnels HTTP/1.1\r\nHost: 127.0.0.1:8086\r\n\r\n", "200"),
            ("GET /tunnels HTTP/1.1\r\nHost: [::1]:8086\r\n\r\n", "200"),
            ("GET /tunnels HTTP/1.1\r\nHost: localhost\r\n\r\n", "200"),
            ("GET /tunnels?x HTTP/1.0\r\n\r\n", "200"),
            ("GET /tunnels HTTP/1.1\r\nHost: evil.example:8086\r\n\r\n", "403"),
            ("POST /tunnels HTTP/1.1\r\n\r\n", "405"),
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("", "404"),
        ] {
            assert_eq!(status(request), expected, "{request}");
        }
    }
}
