//! The web server of a cell: nginx, or `weir perf web-server`.

use super::WebSettings;
use crate::bench::hosts::LabHost;
use crate::bench::machine::{MachineStep, Started, await_listener};
use crate::model::Failure;
use crate::workloads::download::{NGINX_MISSING, find_nginx};
use host::Namespace;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tempfile::TempDir;

/// The program that serves as web server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    Nginx,
    Weir,
    /// nginx if it is installed, or else weir.
    Any,
}

/// A running web server and its files.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) program: Started,
    pub(super) program_name: &'static str,
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
            let [certificate, key] = certify(address)?;
            fs::write(at.join(CERTIFICATE), certificate)
                .and_then(|()| fs::write(at.join(KEY), key))
                .map_err(|error| Failure::io("writing a certificate", &error))?;
        }
        let argv = match &nginx {
            Some(nginx) => {
                furnish(at, settings, address, cpus.len()).map_err(wrong)?;
                nginx_line(&nginx.display().to_string(), at)
            }
            None => {
                let mut argv = built_in(&step.weir.display().to_string(), settings, address);
                if settings.is_tls {
                    let file = |name: &str| at.join(name).display().to_string();
                    argv.extend(tls_of_built_in([file(CERTIFICATE), file(KEY)]));
                }
                argv
            }
        };
        let mut program = Started::new(inside, argv, cpus, step)?;
        await_listener(inside, PORT, &mut program, step)?;
        let program_name = if nginx.is_some() { "nginx" } else { "weir perf web-server" };
        Ok(Self { program, program_name, is_tls: settings.is_tls, folder })
    }

    /// Returns the certificate that the client has to trust.
    pub(super) fn certificate(&self) -> Option<PathBuf> {
        self.is_tls.then(|| self.folder.path().join(CERTIFICATE))
    }
}

/// Writes the files of the server on a real host. Returns the server's command line, and the
/// certificate for https.
pub(super) fn on_host(
    settings: &WebSettings,
    host: &dyn LabHost,
    address: IpAddr,
) -> Result<(Vec<String>, Option<String>), Failure> {
    let place = |name: &str, text: &str| host.place(&format!("{FOLDER}/{name}"), text);
    let is_nginx = settings.program == Program::Nginx;
    let mut argv = match is_nginx {
        true => {
            let size = usize::try_from(settings.size.count()).unwrap_or(usize::MAX);
            place("www/file", &"w".repeat(size))?;
            let file = place("nginx.conf", &configuration(settings, address, "auto"))?;
            // The path of a user other than root may lack the folder of nginx.
            let found = "PATH=$PATH:/usr/sbin:/sbin; exec \"$0\" \"$@\"";
            let folder = Path::new(&file).parent().unwrap_or(Path::new("/"));
            let shell = ["sh", "-c", found].map(str::to_owned).into_iter();
            shell.chain(nginx_line("nginx", folder)).collect()
        }
        false => built_in(host.weir(), settings, address),
    };
    if !settings.is_tls {
        return Ok((argv, None));
    }
    let [certificate, key] = certify(address)?;
    let files = [place(CERTIFICATE, &certificate)?, place(KEY, &key)?];
    if !is_nginx {
        argv.extend(tls_of_built_in(files));
    }
    Ok((argv, Some(certificate)))
}

/// Returns the command line of Weir's own server.
pub(super) fn built_in(weir: &str, settings: &WebSettings, address: IpAddr) -> Vec<String> {
    let mut argv: Vec<String> = [weir, "perf", "web-server"].map(str::to_owned).into();
    let mut option = |name: &str, value: String| argv.extend([name.to_owned(), value]);
    option("--bind", address.to_string());
    option("--port", PORT.to_string());
    option("--size", format!("{}B", settings.size.count()));
    // A client may open a connection before the server has noticed the end of the previous
    // connection.
    option("--connections", (2 * settings.connections + 2).to_string());
    argv
}

/// Returns the options of Weir's own server for https.
fn tls_of_built_in([certificate, key]: [String; 2]) -> [String; 4] {
    ["--certificate".to_owned(), certificate, "--key".to_owned(), key]
}

/// Returns the command line of nginx, whose files are in `folder`.
fn nginx_line(nginx: &str, folder: &Path) -> Vec<String> {
    let prefix = format!("{}/", folder.display());
    [nginx, "-e", "stderr", "-p", &prefix, "-c", "nginx.conf"].map(str::to_owned).into()
}

/// Makes a certificate for the server's address, and its key.
fn certify(address: IpAddr) -> Result<[String; 2], Failure> {
    let made = rcgen::generate_simple_self_signed(vec![address.to_string()])
        .map_err(|error| Failure::Workload(format!("making a certificate: {error}")))?;
    Ok([made.cert.pem(), made.signing_key.serialize_pem()])
}

/// Returns nginx's configuration for a server at `address`. `workers`: the number of worker
/// processes, or `auto`.
fn configuration(settings: &WebSettings, address: IpAddr, workers: &str) -> String {
    let tls = match settings.is_tls {
        true => format!(
            "ssl_certificate {CERTIFICATE};\n        ssl_certificate_key {KEY};\n        ssl_protocols TLSv1.3;"
        ),
        false => String::new(),
    };
    let port = if address.is_ipv6() { format!("[::]:{PORT}") } else { PORT.to_string() };
    let listen = if settings.is_tls { format!("{port} ssl") } else { port };
    CONFIGURATION.replace("WORKERS", workers).replace("LISTEN", &listen).replace("TLS", &tls)
}

fn furnish(
    folder: &Path,
    settings: &WebSettings,
    address: IpAddr,
    workers: usize,
) -> io::Result<()> {
    let text = configuration(settings, address, &workers.max(1).to_string());
    fs::write(folder.join("nginx.conf"), text)?;
    fs::create_dir(folder.join("www"))?;
    let size = usize::try_from(settings.size.count()).unwrap_or(usize::MAX);
    fs::write(folder.join("www/file"), vec![b'w'; size])
}

pub(super) const PORT: u16 = 8080;
pub(super) const CERTIFICATE: &str = "server.pem";
/// The folder of the server's files on a real host.
const FOLDER: &str = "web";
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
