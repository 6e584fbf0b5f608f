use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::event::PollFlags;
use rustls::pki_types::ServerName;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Connection, Error,
    ServerConfig, ServerConnection,
};

use crate::run::connection::is_transient;

/// TLS over a TCP socket that never blocks.
#[derive(Debug)]
pub(in crate::run) struct TlsStream {
    socket: TcpStream,
    session: Connection,
}

impl TlsStream {
    /// Starts the handshake with a controller. The socket may still be connecting.
    pub(in crate::run) fn connecting(
        socket: TcpStream,
        peer: IpAddr,
        config: Arc<ClientConfig>,
    ) -> io::Result<Self> {
        let name = ServerName::IpAddress(peer.into());
        let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
        Ok(Self { socket, session: session.into() })
    }

    pub(in crate::run) fn accepted(
        socket: TcpStream,
        config: Arc<ServerConfig>,
    ) -> io::Result<Self> {
        let session = ServerConnection::new(config).map_err(io::Error::other)?;
        Ok(Self { socket, session: session.into() })
    }

    /// Returns the events to wait for, so that the stream can do what `wanted` requests.
    pub(in crate::run) fn interest(&self, wanted: PollFlags) -> PollFlags {
        let mut flags = if self.session.is_handshaking() { PollFlags::IN } else { wanted };
        if self.session.wants_write() {
            flags |= PollFlags::OUT;
        }
        flags
    }

    /// Whether the peer has not yet received all written bytes.
    pub(in crate::run) fn is_sending(&self) -> bool {
        self.session.wants_write()
    }

    /// Sends the TLS records that wait.
    fn send(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Like [`TlsStream::send`]. If the peer has closed the connection, returns the peer's alert as
    /// the error.
    fn send_all(&mut self) -> io::Result<()> {
        let Err(error) = self.send() else { return Ok(()) };
        if is_transient(&error) {
            return Err(error);
        }
        while self.session.read_tls(&mut self.socket).is_ok_and(|read| read > 0) {
            self.session.process_new_packets().map_err(described)?;
        }
        Err(error)
    }

    /// Handles the records that have arrived.
    fn process(&mut self) -> io::Result<()> {
        let processed = self.session.process_new_packets();
        // Send the reply of the handshake, or the alert with the reason of an error.
        let sent = self.send();
        processed.map_err(described)?;
        match sent {
            Err(error) if !is_transient(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the number of bytes before the end of the connection. If the connection ends within
    /// the handshake, returns an error: the socket would stay readable, and the handshake would
    /// wait for ever.
    fn at_end(&self, read: usize) -> io::Result<usize> {
        if self.session.is_handshaking() {
            let problem = "the peer closed the connection within the TLS handshake: see its log";
            return Err(io::Error::new(ErrorKind::UnexpectedEof, problem));
        }
        Ok(read)
    }
}

impl Read for TlsStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        loop {
            let plaintext = self.session.reader().read(&mut bytes[read..]);
            match plaintext {
                Ok(0) => return self.at_end(read),
                Ok(more) => {
                    read += more;
                    // Keep room for the plaintext of all records that one more read may complete.
                    if bytes.len() - read < ROOM {
                        return Ok(read);
                    }
                    continue;
                }
                Err(error) if is_transient(&error) => {}
                // The peer closed the connection without the alert close_notify.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return self.at_end(read),
                Err(error) => return Err(error),
            }
            match self.session.read_tls(&mut self.socket) {
                Ok(_) => self.process()?,
                Err(error) if is_transient(&error) && read > 0 => return Ok(read),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send_all()?;
        if self.session.is_handshaking() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let written = self.session.writer().write(bytes)?;
        self.flush()?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.send_all() {
            Err(error) if !is_transient(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

impl AsFd for TlsStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        self.session.send_close_notify();
        // The connection ends, whether or not the peer learns the reason.
        let _ = self.send();
    }
}

fn described(error: Error) -> io::Error {
    io::Error::other(words(&error))
}

/// Returns the cause of an error, and advice for the user.
pub(super) fn words(error: &Error) -> String {
    use CertificateError as Wrong;
    match error {
        Error::InvalidCertificate(Wrong::Expired | Wrong::ExpiredContext { .. }) => {
            "the peer's certificate has expired: renew it, or set this machine's clock".to_owned()
        }
        Error::InvalidCertificate(Wrong::NotValidYet | Wrong::NotValidYetContext { .. }) => {
            "the peer's certificate is not valid yet: set the clocks of both machines".to_owned()
        }
        Error::InvalidCertificate(Wrong::UnknownIssuer | Wrong::BadSignature) => {
            "the peer's certificate is not signed by the CA of the switch: name the CA that signs \
             controllers, or sign the certificate by this CA"
                .to_owned()
        }
        Error::InvalidCertificate(Wrong::InvalidPurpose | Wrong::InvalidPurposeContext { .. }) => {
            "the peer's certificate is for another purpose (extended key usage): sign another"
                .to_owned()
        }
        Error::InvalidCertificate(reason) => {
            format!("the peer's certificate is unusable ({reason}): sign another")
        }
        Error::NoCertificatesPresented => {
            "the peer has no certificate: give it one that the CA of the switch has signed"
                .to_owned()
        }
        Error::AlertReceived(
            AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure,
        )
        | Error::PeerIncompatible(_) => {
            "the peer does not speak TLS 1.3, which the switch needs".to_owned()
        }
        Error::AlertReceived(alert) => match refusal(*alert) {
            Some(reason) => format!("the peer refused the switch's certificate: {reason}"),
            None => format!("the peer ended TLS: {alert:?}"),
        },
        Error::InvalidMessage(_) => {
            "the peer does not speak TLS: use tcp: or ptcp:, or configure TLS there".to_owned()
        }
        other => other.to_string(),
    }
}

/// Returns the reason for which a peer refused this end's certificate.
fn refusal(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::UnknownCA => {
            "its CA is unknown there (name the CA of switches at the controller)"
        }
        AlertDescription::CertificateExpired => "it has expired (renew it)",
        AlertDescription::CertificateRevoked => "it was revoked (renew it)",
        AlertDescription::CertificateRequired => "there was none",
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::DecryptError
        | AlertDescription::AccessDenied => "it is not accepted there (see the controller's log)",
        _ => return None,
    })
}

/// More bytes than the plaintext of a record, which has at most 16,384 bytes.
const ROOM: usize = 32 << 10;
