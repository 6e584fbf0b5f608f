//! Tests both ends of a handshake: which identities are accepted, and which reasons are reported.

use super::*;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa,
    KeyPair, RevokedCertParams, SerialNumber,
};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::kx_group;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::{CertificateError, ClientConnection, NamedGroup, ServerConnection};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

#[test]
fn a_pin_admits_only_its_own_key() {
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
fn an_authority_admits_only_the_names_it_signed() {
    let home = tempfile::tempdir().unwrap();
    let authority = Authority::new(home.path(), "ca");
    let other = Authority::new(home.path(), "other");
    let server = authority.issue("tokyo.example", 1);
    let client = authority.issue("laptop.example", 1);
    let trusted = Authorities::load(&authority.file, &[]).unwrap();
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

    let reported = |peers: &[TrustedPeer], client: &Identity, at: &ServerTrust| {
        let (at_server, at_client) = shake(&server, peers, client, at).unwrap_err();
        format!("{at_server} {at_client}")
    };
    // The name must match exactly: neither a prefix nor a part of it counts.
    let text =
        reported(&[peer("laptop.example.com"), peer("laptop")], &client, &at("tokyo.example"));
    assert!(text.contains("laptop.example"), "{text}");
    reported(&peers, &other.issue("laptop.example", 1), &at("tokyo.example"));
    reported(&peers, &own("laptop.example"), &at("tokyo.example"));
    reported(&peers, &client, &at("osaka.example"));
}

/// `openssl req -x509` makes certificates with CA:TRUE.
#[test]
fn the_refusal_of_an_authoritys_own_certificate_advises_to_pin_the_key() {
    let home = tempfile::tempdir().unwrap();
    let mut parameters = certificate_parameters(&["tokyo.example"], 1);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pair = KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&pair).unwrap();
    let file = home.path().join("server.crt");
    fs::write(&file, certificate.pem()).unwrap();
    let server = Identity::of_any_age(certificate.der().clone(), pair.serialize_der());
    let client = own("laptop");
    let peers = [pinned("laptop", &client)];
    let authorities = Authorities::load(&file, &[]).unwrap();
    let at = ServerTrust::Certified { authorities, name: "tokyo.example".to_owned() };
    let (_, at_client) = shake(&server, &peers, &client, &at).unwrap_err();
    assert!(at_client.contains("(CA:TRUE)") && at_client.contains("--pin"), "{at_client}");
    shake(&server, &peers, &client, &to(&server)).unwrap();
}

#[test]
fn an_expired_certificate_is_refused_even_if_pinned() {
    let home = tempfile::tempdir().unwrap();
    let authority = Authority::new(home.path(), "ca");
    let (good, old) = (own("good"), authority.issue("old", -1));
    let (at_server, at_client) =
        shake(&good, &[pinned("old", &old)], &old, &to(&good)).unwrap_err();
    assert!(at_server.contains("expired"), "{at_server}");
    assert!(at_client.contains("Expired"), "{at_client}");
    let (_, at_client) = shake(&old, &[pinned("good", &good)], &good, &to(&old)).unwrap_err();
    assert!(at_client.contains("expired"), "{at_client}");

    // An end detects its own expired certificate before it contacts any peer.
    let (certificate, key) = (home.path().join("old.crt"), home.path().join("old.key"));
    let error = Identity::load(&certificate, &key).unwrap_err().to_string();
    assert!(error.contains("expired on") && error.contains("weir tunnel keys"), "{error}");
}

#[test]
fn the_error_of_an_expired_certificate_is_the_same_at_each_attempt_and_names_the_remedy() {
    let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let expired = |time| {
        let error = CertificateError::ExpiredContext { time: at(time), not_after: at(100) };
        explained(&rustls::Error::from(error))
    };
    assert_eq!(expired(101), expired(160));
    let text = expired(101);
    assert!(text.contains("certificate expired: renew the certificate at its end"), "{text}");
    let error = CertificateError::ExpiredRevocationListContext { time: at(9), next_update: at(1) };
    let list = explained(&rustls::Error::from(error));
    assert!(list.ends_with("list expired: get a newer list for `crl-file`"), "{list}");
    assert_eq!(explained(&"another reason"), "another reason");
}

#[test]
fn a_peer_gets_its_name_from_the_current_list_of_trusted_peers() {
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
    // A name in a certificate that no trusted authority signed does not count.
    let home = tempfile::tempdir().unwrap();
    let other = Authorities::load(&Authority::new(home.path(), "ca").file, &[]).unwrap();
    let proof = Proof::Certified { authorities: other, name: "first".to_owned() };
    assert!(name(&[TrustedPeer { name: "a".parse().unwrap(), proof }]).is_err());
}

#[test]
fn both_ends_prefer_the_hybrid_key_exchange_and_accept_a_peer_without_it() {
    let (server, client) = (own("server"), own("client"));
    let peers = [pinned("laptop", &client)];
    let group = shake(&server, &peers, &client, &to(&server)).unwrap();
    assert_eq!(group, NamedGroup::X25519MLKEM768);

    let credentials = Credentials::new(&client, to(&server));
    let of_old_times = CryptoProvider {
        kx_groups: vec![kx_group::X25519],
        ..CryptoProvider::clone(&tls::provider())
    };
    let config = credentials.tls_by(Arc::new(of_old_times)).unwrap();
    let group = shake_by(config, "weir-tunnel", &server, &peers).unwrap();
    assert_eq!(group, NamedGroup::X25519);
}

#[test]
fn a_revoked_certificate_or_an_unusable_list_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let authority = Authority::new(home.path(), "ca");
    let other = Authority::new(home.path(), "other");
    let server = authority.issue("tokyo.example", 1);
    let client = authority.issue("laptop.example", 1);
    let verdict = |lists: &[PathBuf]| {
        let authorities = Authorities::load(&authority.file, lists).unwrap();
        let name = "laptop.example".to_owned();
        let proof = Proof::Certified { authorities: Arc::clone(&authorities), name };
        let peers = [TrustedPeer { name: "laptop".parse().unwrap(), proof }];
        let at = ServerTrust::Certified { authorities, name: "tokyo.example".to_owned() };
        shake(&server, &peers, &client, &at)
    };
    let list = |name: &str, revoked: &[&str], days: i64| authority.revoke(name, revoked, days);
    verdict(&[]).unwrap();
    verdict(&[list("none.pem", &[], 1)]).unwrap();
    verdict(&[list("none.der", &[], 1)]).unwrap();

    for file in ["revoked.pem", "revoked.der"] {
        let (at_server, at_client) = verdict(&[list(file, &["laptop.example"], 1)]).unwrap_err();
        assert!(at_server.contains("Revoked"), "{at_server}");
        assert!(at_client.contains("CertificateRevoked"), "{at_client}");
    }
    let (_, at_client) = verdict(&[list("server.pem", &["tokyo.example"], 1)]).unwrap_err();
    assert!(at_client.contains("Revoked"), "{at_client}");
    // An outdated list, or a list of another authority, does not admit the certificate.
    verdict(&[list("old.pem", &[], -1)]).unwrap_err();
    verdict(&[other.revoke("other.pem", &[], 1)]).unwrap_err();

    let broken = home.path().join("broken.crl");
    for text in [&b"\x30\x03abc"[..], b"", b"-----BEGIN CERTIFICATE-----\n"] {
        fs::write(&broken, text).unwrap();
        let error = Authorities::load(&authority.file, std::slice::from_ref(&broken))
            .unwrap_err()
            .to_string();
        assert!(error.contains("broken.crl holds no revocation list"), "{error}");
    }
}

#[test]
fn a_connection_lasts_until_a_certificate_of_its_chain_expires_and_with_a_pin_forever() {
    let home = tempfile::tempdir().unwrap();
    let authority = Authority::new(home.path(), "ca");
    let authorities = Authorities::load(&authority.file, &[]).unwrap();
    let client = authority.issue("laptop.example", 2);
    let name: PeerName = "laptop".parse().unwrap();
    let proof = Proof::Certified { authorities, name: "laptop.example".to_owned() };
    let certified = [TrustedPeer { name: name.clone(), proof }];
    let shown = client.certified().cert.clone();
    let end = client.certificate().valid_until();
    let now = UnixTime::now();
    let at = |end: Duration| UnixTime::since_unix_epoch(end);
    assert_eq!(good_until(&name, &shown, &certified, now).unwrap(), Some(end));
    assert_eq!(good_until(&name, &shown, &certified, at(end)).unwrap(), Some(end));
    let after = at(end + Duration::from_secs(1));
    assert!(matches!(
        good_until(&name, &shown, &certified, after),
        Err(IdentityError::Expired { .. })
    ));
    let by_pin = [pinned("laptop", &client)];
    assert_eq!(good_until(&name, &shown, &by_pin, after).unwrap(), None);
    let renamed = [pinned("desktop", &client)];
    assert!(matches!(
        good_until(&name, &shown, &renamed, now),
        Err(IdentityError::Renamed(other)) if other.as_str() == "desktop"
    ));

    let mut parameters = certificate_parameters(&["middle"], 1);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let middle =
        CertifiedIssuer::signed_by(parameters, KeyPair::generate().unwrap(), &authority.issuer);
    let middle = middle.unwrap();
    let pair = KeyPair::generate().unwrap();
    let leaf = certificate_parameters(&["laptop.example"], 2).signed_by(&pair, &middle).unwrap();
    let chain = [leaf.der().clone(), middle.der().clone()];
    let end = Certificate::parse(&chain[1]).unwrap().valid_until();
    assert_eq!(good_until(&name, &chain, &certified, now).unwrap(), Some(end));
    assert!(good_until(&name, &chain, &certified, at(end + Duration::from_secs(1))).is_err());
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

/// Returns the negotiated group, or the error of each end.
fn shake(
    server: &Identity,
    peers: &[TrustedPeer],
    client: &Identity,
    trust: &ServerTrust,
) -> Result<NamedGroup, (String, String)> {
    shake_by(client_config(client, trust).unwrap(), trust.server_name(), server, peers)
}

fn shake_by(
    client: rustls::ClientConfig,
    name: &str,
    server: &Identity,
    peers: &[TrustedPeer],
) -> Result<NamedGroup, (String, String)> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut near = ClientConnection::new(Arc::new(client), name).unwrap();
    let config = Arc::new(server_config(server, peers).unwrap());
    let mut far = ServerConnection::new(config).unwrap();
    let mut reported = (String::new(), String::new());
    for _ in 0..8 {
        let mut wire = Vec::new();
        while near.wants_write() {
            near.write_tls(&mut wire).unwrap();
        }
        let mut wire = &wire[..];
        while !wire.is_empty() && reported.0.is_empty() {
            far.read_tls(&mut wire).unwrap();
            reported.0 =
                far.process_new_packets().err().map(|error| error.to_string()).unwrap_or_default();
        }
        let mut wire = Vec::new();
        while far.wants_write() {
            far.write_tls(&mut wire).unwrap();
        }
        let mut wire = &wire[..];
        while !wire.is_empty() && reported.1.is_empty() {
            near.read_tls(&mut wire).unwrap();
            reported.1 = near
                .process_new_packets()
                .err()
                .map(|error| format!("{error} {error:?}"))
                .unwrap_or_default();
        }
    }
    if reported == Default::default() {
        assert!(!near.is_handshaking() && !far.is_handshaking());
        assert_eq!(far.alpn_protocol(), Some(ALPN));
        let groups = [
            near.negotiated_key_exchange_group().unwrap().name(),
            far.negotiated_key_exchange_group().unwrap().name(),
        ];
        assert_eq!(groups[0], groups[1]);
        return Ok(groups[0]);
    }
    Err(reported)
}

struct Authority {
    file: PathBuf,
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

    /// Issues a certificate that is valid for this many days. Its files are next to the
    /// authority's.
    fn issue(&self, name: &str, days: i64) -> Identity {
        let parameters = certificate_parameters(&[name], days);
        let pair = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&pair, &self.issuer).unwrap();
        let made = NewCertificate::of(certificate.pem(), pair.serialize_pem());
        let beside = |ending: &str| self.file.with_file_name(format!("{name}.{ending}"));
        made.write(&beside("crt"), &beside("key"), true).unwrap();
        Identity::of_any_age(certificate.der().clone(), pair.serialize_der())
    }

    /// Writes a revocation list whose next update is in `days` days. The file's suffix selects PEM
    /// or DER.
    fn revoke(&self, file: &str, names: &[&str], days: i64) -> PathBuf {
        let revoked = |name: &&str| RevokedCertParams {
            serial_number: serial(name),
            revocation_time: in_days(-3),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: in_days(-3),
            next_update: in_days(days),
            crl_number: 1_u64.into(),
            issuing_distribution_point: None,
            revoked_certs: names.iter().map(revoked).collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).unwrap();
        let path = self.file.with_file_name(file);
        match file.ends_with(".der") {
            true => fs::write(&path, list.der()).unwrap(),
            false => fs::write(&path, list.pem().unwrap()).unwrap(),
        }
        path
    }
}

fn certificate_parameters(names: &[&str], days: i64) -> CertificateParams {
    let all: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut parameters = CertificateParams::new(all).unwrap();
    parameters.serial_number = Some(serial(names[0]));
    (parameters.not_before, parameters.not_after) = (in_days(-9), in_days(days));
    parameters
}

fn serial(name: &str) -> SerialNumber {
    SerialNumber::from_slice(name.as_bytes())
}

fn in_days<T: From<SystemTime>>(days: i64) -> T {
    let (now, span) = (SystemTime::now(), Duration::from_secs(24 * 3600 * days.unsigned_abs()));
    if days < 0 { (now - span).into() } else { (now + span).into() }
}
