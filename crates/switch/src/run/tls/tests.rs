//! TLS between a bridge and a peer that uses rustls directly.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::SystemTime;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair,
    PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, RootCertStore, ServerConfig,
    ServerConnection, SideData, StreamOwned,
};

use super::*;
use crate::run::tls::TlsSettings;

const DAY: Duration = Duration::from_secs(86_400);

/// A CA, whose certificates are files in a folder.
struct Authority {
    folder: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

fn parameters(name: &str, until: SystemTime) -> CertificateParams {
    let mut parameters = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.not_before = (SystemTime::now() - 9 * DAY).into();
    parameters.not_after = until.into();
    parameters
}

fn key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()
}

impl Authority {
    fn new(folder: &Path, name: &str) -> Self {
        let mut parameters = parameters(name, SystemTime::now() + DAY);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(parameters, key()).unwrap();
        std::fs::write(folder.join(format!("{name}.ca")), issuer.pem()).unwrap();
        Self { folder: folder.to_owned(), issuer }
    }

    /// Signs a certificate, and writes its file and the file of its key.
    fn issue(&self, name: &str) {
        self.issue_until(name, SystemTime::now() + DAY);
    }

    fn issue_until(&self, name: &str, until: SystemTime) {
        let pair = key();
        let certificate = parameters(name, until).signed_by(&pair, &self.issuer).unwrap();
        let path = |ending: &str| self.folder.join(format!("{name}.{ending}"));
        std::fs::write(path("crt"), certificate.pem() + &self.issuer.pem()).unwrap();
        std::fs::write(path("key"), pair.serialize_pem()).unwrap();
    }
}

/// Creates a folder with the CAs `good` and `other`, and the certificates `switch` and
/// `controller`, which `good` has signed.
fn files() -> (TempDir, Authority, Authority) {
    let folder = TempDir::new().unwrap();
    let [good, other] = ["good", "other"].map(|name| Authority::new(folder.path(), name));
    good.issue("switch");
    good.issue("controller");
    (folder, good, other)
}

fn settings(folder: &Path) -> TlsSettings {
    TlsSettings {
        private_key: folder.join("switch.key"),
        certificate: folder.join("switch.crt"),
        ca_certificate: folder.join("good.ca"),
        bootstrap_ca_certificate: false,
    }
}

fn use_files(rig: &Rig, settings: &TlsSettings) -> Result<(), String> {
    let (mut note, numbers) = (|_: String| {}, HashMap::new());
    let mut progress =
        crate::run::progress::Progress { note: &mut note, failures: None, numbers: &numbers };
    let tls = &rig.thread.session.switch.tls;
    tls.change(Some(settings), &mut progress).map_err(|error| error.to_string())
}

type Chain = Vec<CertificateDer<'static>>;

fn identity(folder: &Path, name: &str) -> (Chain, PrivateKeyDer<'static>) {
    let chain = CertificateDer::pem_file_iter(folder.join(format!("{name}.crt"))).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join(format!("{name}.key"))).unwrap();
    (chain.map(Result::unwrap).collect(), key)
}

fn roots(folder: &Path, authority: &str) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let file = folder.join(format!("{authority}.ca"));
    roots.add(CertificateDer::from_pem_file(file).unwrap()).unwrap();
    Arc::new(roots)
}

/// Starts a controller that presents the certificate `name` and trusts switches of `authority`.
/// Sends `message` on each connection, and returns the first message after the hello, or an error.
fn controller(
    folder: &Path,
    name: &str,
    authority: &str,
    message: &'static [u8],
) -> (Remote, Receiver<Result<Vec<u8>, String>>) {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let roots = roots(folder, authority);
    let clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
    let (chain, key) = identity(folder, name);
    let config = ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_client_cert_verifier(clients.build().unwrap());
    let config = Arc::new(config.with_single_cert(chain, key).unwrap());
    serve(move |socket| {
        let session = ServerConnection::new(config.clone()).unwrap();
        talk(StreamOwned::new(session, socket), message)
    })
}

fn serve(
    mut talk: impl FnMut(TcpStream) -> Result<Vec<u8>, String> + Send + 'static,
) -> (Remote, Receiver<Result<Vec<u8>, String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (said, heard) = channel();
    std::thread::spawn(move || {
        while let Ok((socket, _)) = listener.accept() {
            if said.send(talk(socket)).is_err() {
                return;
            }
        }
    });
    (Remote { carrier: Carrier::Tls, address }, heard)
}

/// Sends a hello and `message`, and returns all messages up to a barrier reply.
fn talk<C, S>(mut stream: StreamOwned<C, TcpStream>, message: &[u8]) -> Result<Vec<u8>, String>
where
    C: std::ops::DerefMut<Target = ConnectionCommon<S>>,
    S: SideData,
{
    let mut all = Vec::new();
    let mut bytes = [0; 1000];
    let mut said = stream.write_all(&[&HELLO[..], message].concat());
    while said.is_ok() && !all.ends_with(&BARRIER_REPLY) {
        said = match stream.read(&mut bytes) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                all.extend_from_slice(&bytes[..read]);
                Ok(())
            }
            Err(error) => Err(error),
        };
    }
    said.map(|()| all).map_err(|error| error.to_string())
}

/// Runs the thread until `ready` returns a value. The bridge does not wait between two connection
/// attempts.
fn turn_until<T>(rig: &mut Rig, what: &str, mut ready: impl FnMut(&Rig) -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = ready(rig) {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}: {:?}", rig.thread.controllers);
        for controller in &mut rig.thread.controllers {
            controller.next = controller.next.map(|_| Instant::now());
        }
        rig.thread.turn();
    }
}

/// Connects to a controller until there is an error, and returns the error.
fn error_of(rig: &mut Rig, remote: Remote) -> String {
    rig.thread.connections.clear();
    rig.thread.controllers = vec![Controller::new(remote)];
    turn_until(rig, "an error", |rig| rig.thread.controllers[0].last_error.clone())
}

#[test]
fn a_controller_reads_a_long_flow_dump_over_tls() {
    const REQUESTS: &[u8] = &{
        let mut bytes = [0; DUMP.len() + BARRIER.len()];
        let mut at = 0;
        while at < bytes.len() {
            bytes[at] = if at < DUMP.len() { DUMP[at] } else { BARRIER[at - DUMP.len()] };
            at += 1;
        }
        bytes
    };
    let (folder, ..) = files();
    let mut rig = Rig::with_rules(20_000);
    use_files(&rig, &settings(folder.path())).unwrap();
    let (remote, heard) = controller(folder.path(), "controller", "good", REQUESTS);
    rig.thread.controllers = vec![Controller::new(remote)];
    let bytes = turn_until(&mut rig, "the dump", |_| heard.try_recv().ok()).unwrap();
    let received = messages(&bytes);
    let (last, parts) = received.split_last().unwrap();
    assert_eq!((*last, cookies(parts).len()), (&BARRIER_REPLY[..], 20_000));
}

#[test]
fn each_cause_of_a_failed_handshake_has_its_own_words() {
    let (folder, good, other) = files();
    let folder = folder.path();
    good.issue_until("expired", SystemTime::now() - DAY);
    other.issue("stranger");
    let mut rig = Rig::with_rules(0);
    let nowhere = Remote { carrier: Carrier::Tls, address: "127.0.0.1:1".parse().unwrap() };
    let error = error_of(&mut rig, nowhere);
    assert!(error.contains("by ovs-vsctl set-ssl, or by [tls]"), "{error}");
    use_files(&rig, &settings(folder)).unwrap();
    for (name, authority, words) in [
        ("expired", "good", "the peer's certificate has expired"),
        ("stranger", "good", "is not signed by the CA of the switch"),
        ("controller", "other", "the peer refused the switch's certificate"),
    ] {
        let (remote, _heard) = controller(folder, name, authority, &BARRIER);
        let error = error_of(&mut rig, remote);
        assert!(error.contains(words), "{name}: {error}");
    }
    let (remote, _heard) = serve(|mut socket| {
        socket.write_all(&HELLO).unwrap();
        let _ = socket.read(&mut [0; 1000]);
        Ok(Vec::new())
    });
    let error = error_of(&mut rig, remote);
    assert!(error.contains("the peer does not speak TLS"), "{error}");
    let (remote, _heard) = serve(|mut socket| {
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
        Ok(Vec::new())
    });
    let error = error_of(&mut rig, remote);
    assert!(error.contains("closed the connection within the TLS handshake"), "{error}");
}

#[test]
fn changed_tls_files_are_used_and_unusable_contents_leave_the_former_contents_in_force() {
    let (folder, good, other) = files();
    let folder = folder.path();
    let mut rig = Rig::with_rules(0);
    use_files(&rig, &settings(folder)).unwrap();
    let connects = |rig: &mut Rig, authority: &str| {
        let (remote, heard) = controller(folder, "controller", authority, &BARRIER);
        rig.thread.connections.clear();
        rig.thread.controllers = vec![Controller::new(remote)];
        turn_until(rig, "an answer", |_| heard.try_recv().ok())
    };
    connects(&mut rig, "good").unwrap();
    std::fs::write(folder.join("switch.crt"), "half").unwrap();
    connects(&mut rig, "good").unwrap();
    let error = use_files(&rig, &settings(folder)).unwrap_err();
    assert!(error.contains("switch.crt has no certificate in PEM"), "{error}");
    connects(&mut rig, "good").unwrap();
    other.issue("switch");
    assert!(connects(&mut rig, "good").is_err());
    connects(&mut rig, "other").unwrap();
    good.issue("switch");
    connects(&mut rig, "good").unwrap();
}

#[test]
fn a_missing_ca_certificate_comes_from_the_first_controller() {
    let (folder, _, other) = files();
    let folder = folder.path();
    other.issue("stranger");
    let mut rig = Rig::with_rules(0);
    let file = folder.join("learned.ca");
    let mut settings = TlsSettings { ca_certificate: file.clone(), ..settings(folder) };
    let error = use_files(&rig, &settings).unwrap_err();
    assert!(error.contains("cannot read the certificate of a CA"), "{error}");
    settings.bootstrap_ca_certificate = true;
    use_files(&rig, &settings).unwrap();
    let end = "-----END CERTIFICATE-----";
    let chain = std::fs::read_to_string(folder.join("controller.crt")).unwrap();
    let (alone, _) = chain.split_once(end).unwrap();
    std::fs::write(folder.join("alone.crt"), format!("{alone}{end}\n")).unwrap();
    std::fs::copy(folder.join("controller.key"), folder.join("alone.key")).unwrap();
    let (remote, _heard) = controller(folder, "alone", "good", &BARRIER);
    let error = error_of(&mut rig, remote);
    assert!(error.contains("the peer sent no CA certificate") && !file.exists(), "{error}");
    let (remote, heard) = controller(folder, "controller", "good", &BARRIER);
    rig.thread.controllers = vec![Controller::new(remote)];
    turn_until(&mut rig, "an answer", |_| heard.try_recv().ok()).unwrap();
    let learned = CertificateDer::from_pem_file(&file).unwrap();
    assert_eq!(learned, CertificateDer::from_pem_file(folder.join("good.ca")).unwrap());
    let (remote, _heard) = controller(folder, "stranger", "good", &BARRIER);
    let error = error_of(&mut rig, remote);
    assert!(error.contains("is not signed by the CA"), "{error}");
}

#[test]
fn a_listener_with_tls_serves_peers_of_the_ca_alone() {
    let (folder, _, other) = files();
    let folder = folder.path();
    other.issue("stranger");
    let mut rig = Rig::with_rules(0);
    use_files(&rig, &settings(folder)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    rig.thread.tcp.push((Remote { carrier: Carrier::Tls, address }, listener));
    let mut answer = |name: Option<&str>| {
        let heard = client(folder, name, address);
        turn_until(&mut rig, "an answer", |_| heard.try_recv().ok())
    };
    answer(Some("controller")).unwrap();
    let error = answer(Some("stranger")).unwrap_err();
    assert!(error.contains("UnknownCA") || error.contains("reset"), "{error}");
    let error = answer(None).unwrap_err();
    assert!(error.contains("CertificateRequired") || error.contains("reset"), "{error}");
    let mut plain = TcpStream::connect(address).unwrap();
    plain.write_all(&HELLO).unwrap();
    plain.set_nonblocking(true).unwrap();
    let end = turn_until(&mut rig, "the end", |_| {
        let mut bytes = Vec::new();
        match plain.read_to_end(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            ended => Some((ended.is_ok(), bytes)),
        }
    });
    assert!(!end.1.starts_with(&HELLO[..2]), "{end:?}");
}

/// Connects to the switch with the certificate `name`.
fn client(
    folder: &Path,
    name: Option<&str>,
    address: SocketAddr,
) -> Receiver<Result<Vec<u8>, String>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots(folder, "good"));
    let config = match name.map(|name| identity(folder, name)) {
        Some((chain, key)) => config.with_client_auth_cert(chain, key).unwrap(),
        None => config.with_no_client_auth(),
    };
    let session =
        ClientConnection::new(Arc::new(config), ServerName::IpAddress(address.ip().into()))
            .unwrap();
    let (said, heard) = channel();
    std::thread::spawn(move || {
        let socket = TcpStream::connect(address).unwrap();
        said.send(talk(StreamOwned::new(session, socket), &BARRIER))
    });
    heard
}

#[test]
fn the_refusal_of_unusable_tls_files_names_the_file() {
    let (folder, ..) = files();
    let folder = folder.path();
    let rig = Rig::with_rules(0);
    let good = settings(folder);
    let path = |name: &str| folder.join(name);
    std::fs::write(path("empty.ca"), "").unwrap();
    let cases = [
        (TlsSettings { private_key: path("none.key"), ..good.clone() }, "private key", "none.key"),
        (TlsSettings { private_key: path("good.ca"), ..good.clone() }, "passphrase", "good.ca"),
        (
            TlsSettings { private_key: path("controller.key"), ..good.clone() },
            "together",
            "switch.crt",
        ),
        (TlsSettings { ca_certificate: path("empty.ca"), ..good.clone() }, "of a CA", "empty.ca"),
        (TlsSettings { ca_certificate: "none".into(), ..good.clone() }, "any controller", "none"),
    ];
    for (settings, words, name) in cases {
        let error = use_files(&rig, &settings).unwrap_err();
        assert!(error.contains(words) && error.contains(name), "{error}");
    }
}
