//! The web server of a cell: nginx, or `weir perf web-server`.

use super::WebSettings;
use crate::bench::machine::{MachineStep, Started, await_listener};
use crate::model::Failure;
use crate::workloads::download::{NGINX_MISSING, find_nginx};
use host::Namespace;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tempfile::TempDir;

/// The web server program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    Nginx,
    Weir,
    /// nginx if it is installed, or else weir.
    Any,
}

/// A running server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) program: Started,
    pub(super) program_name: &'static str,
    pub(super) url: String,
    is_tls: bool,
    /// Holds the file, the certificate and everything that the server writes.
    folder: TempDir,
}

impl FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "nginx" => Ok(Self::Nginx),
            "weir" => Ok(Self::Weir),
            "any" => Ok(Self::Any),
            other => Err(format!("no web server `{other}`: write nginx, weir or any")),
        }
    }
}

impl Server {
    pub(super) fn start(
        settings: &WebSettings,
        step: &MachineStep<'_>,
        inside: &Namespace,
        address: IpAddr,
        cpus: &[usize],
    ) -> Result<Self, Failure> {
        let nginx = find_nginx();
        let nginx = match settings.program {
            Program::Weir => None,
            Program::Any => nginx,
            Program::Nginx => {
                Some(nginx.ok_or_else(|| Failure::Workload(NGINX_MISSING.to_owned()))?)
            }
        };
        let folder = tempfile::Builder::new()
            .prefix("web-")
            .tempdir_in(step.programs)
            .map_err(|error| Failure::io("making a folder for the web server", &error))?;
        let at = folder.path();
        let wrong = |error: io::Error| Failure::io("writing the web server's files", &error);
        if settings.is_tls {
            certify(at, address)?;
        }
        let argv = match &nginx {
            Some(nginx) => {
                furnish(at, settings, cpus.len()).map_err(wrong)?;
                let prefix = format!("{}/", at.display());
                let words = ["-e", "stderr", "-p", &prefix, "-c", "nginx.conf"];
                let nginx = nginx.display().to_string();
                [nginx.as_str()].into_iter().chain(words).map(str::to_owned).collect()
            }
            None => {
                let mut argv = built_in(&step.weir.display().to_string(), settings, address);
                if settings.is_tls {
                    let file = |name: &str| at.join(name).display().to_string();
                    argv.extend(["--certificate".to_owned(), file(CERTIFICATE)]);
                    argv.extend(["--key".to_owned(), file(KEY)]);
                }
                argv
            }
        };
        let mut program = Started::new(inside, argv, cpus, step)?;
        await_listener(inside, PORT, &mut program, step)?;
        let scheme = if settings.is_tls { "https" } else { "http" };
        let url = url(scheme, address);
        let program_name = if nginx.is_some() { "nginx" } else { "weir perf web-server" };
        Ok(Self { program, program_name, url, is_tls: settings.is_tls, folder })
    }

    /// Returns the certificate that the client has to trust.
    pub(super) fn certificate(&self) -> Option<PathBuf> {
        self.is_tls.then(|| self.folder.path().join(CERTIFICATE))
    }
}

/// Returns the URL of the file, for the client.
pub(super) fn url(scheme: &str, address: IpAddr) -> String {
    format!("{scheme}://{}/file", SocketAddr::new(address, PORT))
}

/// Returns the command line of Weir's own server.
pub(super) fn built_in(weir: &str, settings: &WebSettings, address: IpAddr) -> Vec<String> {
    let mut argv: Vec<String> = [weir, "perf", "web-server"].map(str::to_owned).into();
    let mut option = |name: &str, value: String| argv.extend([name.to_owned(), value]);
    option("--bind", address.to_string());
    option("--port", PORT.to_string());
    option("--size", format!("{}B", settings.size.count()));
    // A client may open a connection before the server has noticed the end of the previous one.
    option("--connections", (2 * settings.connections + 2).to_string());
    argv
}

/// Makes a certificate for the server's address.
fn certify(folder: &Path, address: IpAddr) -> Result<(), Failure> {
    let made = rcgen::generate_simple_self_signed(vec![address.to_string()])
        .map_err(|error| Failure::Workload(format!("making a certificate: {error}")))?;
    fs::write(folder.join(CERTIFICATE), made.cert.pem())
        .and_then(|()| fs::write(folder.join(KEY), made.signing_key.serialize_pem()))
        .map_err(|error| Failure::io("writing a certificate", &error))
}

fn furnish(folder: &Path, settings: &WebSettings, workers: usize) -> io::Result<()> {
    let tls = match settings.is_tls {
        true => format!(
            "ssl_certificate {CERTIFICATE};\n        ssl_certificate_key {KEY};\n        ssl_protocols TLSv1.3;"
        ),
        false => String::new(),
    };
    let listen = if settings.is_tls { format!("{PORT} ssl") } else { PORT.to_string() };
    let text = CONFIGURATION
        .replace("WORKERS", &workers.max(1).to_string())
        .replace("LISTEN", &listen)
        .replace("TLS", &tls);
    fs::write(folder.join("nginx.conf"), text)?;
    fs::create_dir(folder.join("www"))?;
    let size = usize::try_from(settings.size.count()).unwrap_or(usize::MAX);
    fs::write(folder.join("www/file"), vec![b'w'; size])
}

pub(super) const PORT: u16 = 8080;
const CERTIFICATE: &str = "server.pem";
const KEY: &str = "server.key";
/// nginx's configuration. `user root`: a user namespace may have no other user.
/// `keepalive_requests`: the client decides how many requests a connection carries.
const CONFIGURATION: &str = "\
daemon off;
user root;
worker_processes WORKERS;
pid nginx.pid;
error_log stderr warn;
events {
    worker_connections 4096;
}
http {
    access_log off;
    sendfile on;
    tcp_nopush on;
    open_file_cache max=16;
    keepalive_requests 1000000000;
    default_type application/octet-stream;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {
        listen LISTEN reuseport;
        root www;
        TLS
    }
}
";
