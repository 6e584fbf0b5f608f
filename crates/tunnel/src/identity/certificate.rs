use super::{IdentityError, Pin};
use rustls::pki_types::{CertificateDer, UnixTime};
use std::time::Duration;
use x509_cert::der::{Decode, Encode};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::time::Validity;

/// The contents of a certificate. The parser does not verify the certificate's signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    pub pin: Pin,
    /// The certificate's DNS names, in lower case.
    pub names: Vec<String>,
    /// Whether the certificate's subject and issuer are the same name, as after `weir tunnel keys`.
    is_self_signed: bool,
    valid_from: Duration,
    valid_until: Duration,
}

impl Certificate {
    pub fn parse(certificate: &CertificateDer<'_>) -> Result<Self, IdentityError> {
        let wrong = |error: x509_cert::der::Error| IdentityError::Certificate(error.to_string());
        let parsed = x509_cert::Certificate::from_der(certificate).map_err(wrong)?;
        let inner = parsed.tbs_certificate();
        let names = match inner.get_extension::<SubjectAltName>() {
            Ok(Some((_, names))) => names.0,
            Ok(None) => Vec::new(),
            Err(error) => return Err(IdentityError::Certificate(error.to_string())),
        };
        let names = names.iter().filter_map(|name| match name {
            GeneralName::DnsName(name) => Some(name.as_str().to_ascii_lowercase()),
            _ => None,
        });
        let Validity { not_before, not_after, .. } = inner.validity();
        let key = inner.subject_public_key_info().to_der().map_err(wrong)?;
        Ok(Self {
            pin: Pin::of_public_key(&key),
            names: names.collect(),
            is_self_signed: inner.subject() == inner.issuer(),
            valid_from: not_before.to_unix_duration(),
            valid_until: not_after.to_unix_duration(),
        })
    }

    /// Checks the validity period, also of a pinned certificate: a pin has no expiry date of its
    /// own.
    pub fn check_time(&self, now: UnixTime) -> Result<(), IdentityError> {
        let now = Duration::from_secs(now.as_secs());
        if now < self.valid_from {
            return Err(IdentityError::NotYetValid { from: self.valid_from });
        }
        if now > self.valid_until {
            return Err(IdentityError::Expired { until: self.valid_until });
        }
        Ok(())
    }

    pub fn is_self_signed(&self) -> bool {
        self.is_self_signed
    }

    /// Whether the certificate expires within 30 days.
    pub fn is_due(&self, now: UnixTime) -> bool {
        self.valid_until.saturating_sub(Duration::from_secs(now.as_secs())) < DUE
    }

    /// Returns the end of the validity period as the time since 1970.
    pub fn valid_until(&self) -> Duration {
        self.valid_until
    }

    /// Returns the end of the validity period, as in `2027-11-21T00:00:00Z`.
    pub fn valid_until_date(&self) -> String {
        date(self.valid_until)
    }
}

const DUE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Formats a time since 1970 as in `2027-11-21T00:00:00Z`.
pub(crate) fn date(since_1970: Duration) -> String {
    x509_cert::der::DateTime::from_unix_duration(since_1970)
        .map_or_else(|_| "an impossible date".to_owned(), |date| date.to_string())
}
