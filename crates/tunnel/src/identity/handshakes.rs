//! Both ends of a handshake in one test: who gets in, and what the others are told.

use super::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{ServerName, UnixTime};
use rustls::{ClientConnection, RootCertStore, ServerConnection};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

#[test]
fn pins_let_in_whom_they_name_and_no_one_else() {
    let (server, client, stranger) = (own("server"), own("client"), own("client"));
    let peers = [pinned("laptop", &client)];
    shake(&server, &peers, &client, &to(&server)).unwrap();

    let (at_server, at_client) = shake(&server, &peers, &stranger, &to(&server)).unwrap_err();
    assert!(at_server.contains(&stranger.pin().to_string()), "{at_server}");
    assert!(at_client.contains("CertificateUnknown"), "{at_client}");
    let (_, at_client) = shake(&server, &peers, &client, &to(&stranger)).unwrap_err();
    assert!(at_client.contains(&server.pin().to_string()), "{at_client}");
}

#[test]
fn authorities_let_in_the_names_they_vouch_for() {
    let home = tempfile::tempdir().unwrap();
    let authority = Authority::new(home.path(), "ca");
    let other = Authority::new(home.path(), "other");
    let server = authority.issue("tokyo.example", 1);
    let client = authority.issue("laptop.example", 1);
    let trusted = authorities(&authority.file).unwrap();
    let peer = |name: &str| TrustedPeer {
        name: "laptop".parse().unwrap(),
        proof: Proof::Certified { authorities: Arc::clone(&trusted), name: name.to_owned() },
    };
    let at = |name: &str| ServerTrust::Certified {
        authorities: Arc::clone(&trusted),
        name: name.to_owned(),
    };
    let peers = [peer("laptop.example")];
    shake(&server, &peers, &client, &at("tokyo.example")).unwrap();

    let told = |peers: &[TrustedPeer], client: &Identity, at: &ServerTrust| {
        let (at_server, at_client) = shake(&server, peers, client, at).unwrap_err();
        format!("{at_server} {at_client}")
    };
    // Exactly this name: no prefix and no part of it.
    let text = told(&[peer("laptop.example.com"), peer("laptop")], &client, &at("tokyo.example"));
    assert!(text.contains("laptop.example"), "{text}");
    told(&peers, &other.issue("laptop.example", 1), &at("tokyo.example"));
    told(&peers, &own("laptop.example"), &at("tokyo.example"));
    told(&peers, &client, &at("osaka.example"));
}

#[test]
fn what_has_expired_is_refused_although_it_is_pinned() {
    let home = tempfile::tempdir().unwrap();
    let authority = Authority::new(home.path(), "ca");
    let (good, old) = (own("good"), authority.issue("old", -1));
    let (at_server, at_client) =
        shake(&good, &[pinned("old", &old)], &old, &to(&good)).unwrap_err();
    assert!(at_server.contains("expired"), "{at_server}");
    assert!(at_client.contains("Expired"), "{at_client}");
    let (_, at_client) = shake(&old, &[pinned("good", &good)], &good, &to(&old)).unwrap_err();
    assert!(at_client.contains("expired"), "{at_client}");

    // One's own is noticed before anyone is bothered with it.
    let (certificate, key) = (home.path().join("old.crt"), home.path().join("old.key"));
    let error = Identity::load(&certificate, &key).unwrap_err().to_string();
    assert!(error.contains("expired on") && error.contains("weir tunnel keys"), "{error}");
}

#[test]
fn a_peer_is_named_by_the_list_as_it_is_now() {
    let (first, second) = (own("first"), own("second"));
    let shown = first.certified().cert.clone();
    let name = |trusted: &[TrustedPeer]| peer_name(&shown, trusted, UnixTime::now());
    let both = [pinned("b", &second), pinned("a", &first)];
    assert_eq!(name(&both).unwrap().as_str(), "a");
    assert!(name(&both[..1]).unwrap_err().to_string().contains(&first.pin().to_string()));
    assert!(peer_name(&[], &both, UnixTime::now()).is_err());
    let later =
        UnixTime::since_unix_epoch(Duration::from_secs(UnixTime::now().as_secs() + (3 << 26)));
    assert!(peer_name(&shown, &both, later).unwrap_err().to_string().contains("expired"));
    // A name in a certificate that no authority signed is nothing.
    let empty = Arc::new(RootCertStore::empty());
    let proof = Proof::Certified { authorities: empty, name: "first".to_owned() };
    assert!(name(&[TrustedPeer { name: "a".parse().unwrap(), proof }]).is_err());
}

fn own(name: &str) -> Identity {
    Identity::generate(name, 730).unwrap().0
}

fn pinned(name: &str, identity: &Identity) -> TrustedPeer {
    TrustedPeer { name: name.parse().unwrap(), proof: Proof::Pins(vec![identity.pin()]) }
}

fn to(server: &Identity) -> ServerTrust {
    ServerTrust::Pins(vec![server.pin()])
}

/// What each end says when it does not come about.
fn shake(
    server: &Identity,
    peers: &[TrustedPeer],
    client: &Identity,
    trust: &ServerTrust,
) -> Result<(), (String, String)> {
    let name = ServerName::try_from(trust.server_name().to_owned()).unwrap();
    let config = Arc::new(client_config(client, trust).unwrap());
    let mut near = ClientConnection::new(config, name).unwrap();
    let config = Arc::new(server_config(server, peers).unwrap());
    let mut far = ServerConnection::new(config).unwrap();
    let mut told = (String::new(), String::new());
    for _ in 0..8 {
        let mut wire = Vec::new();
        while near.wants_write() {
            near.write_tls(&mut wire).unwrap();
        }
        let mut wire = &wire[..];
        while !wire.is_empty() && told.0.is_empty() {
            far.read_tls(&mut wire).unwrap();
            told.0 =
                far.process_new_packets().err().map(|error| error.to_string()).unwrap_or_default();
        }
        let mut wire = Vec::new();
        while far.wants_write() {
            far.write_tls(&mut wire).unwrap();
        }
        let mut wire = &wire[..];
        while !wire.is_empty() && told.1.is_empty() {
            near.read_tls(&mut wire).unwrap();
            told.1 = near
                .process_new_packets()
                .err()
                .map(|error| format!("{error} {error:?}"))
                .unwrap_or_default();
        }
    }
    if told == Default::default() {
        assert!(!near.is_handshaking() && !far.is_handshaking());
        assert_eq!(far.alpn_protocol(), Some(ALPN));
        return Ok(());
    }
    Err(told)
}

struct Authority {
    file: std::path::PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new(home: &Path, name: &str) -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
        let issuer =
            CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
        let file = home.join(format!("{name}.pem"));
        fs::write(&file, issuer.pem()).unwrap();
        Self { file, issuer }
    }

    /// Valid until so many days from now; its files stand beside the authority's.
    fn issue(&self, name: &str, days: i64) -> Identity {
        let mut parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let now = SystemTime::now();
        let day = Duration::from_secs(24 * 3600);
        parameters.not_before = (now - day * 9).into();
        parameters.not_after = match days {
            0.. => (now + day * days.unsigned_abs() as u32).into(),
            _ => (now - day * days.unsigned_abs() as u32).into(),
        };
        let pair = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&pair, &self.issuer).unwrap();
        let made = keys::Made::of(certificate.pem(), pair.serialize_pem());
        let beside = |ending: &str| self.file.with_file_name(format!("{name}.{ending}"));
        made.write(&beside("crt"), &beside("key"), true).unwrap();
        Identity::of_any_age(certificate.der().clone(), pair.serialize_der())
    }
}
