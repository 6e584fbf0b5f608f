use crate::PerfError;
use crate::event::Stop;
use crate::options::{ClientOptions, Family};
use nix::net::if_::if_nametoindex;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Returns the server's addresses, in the order to try them.
pub(crate) fn addresses(
    options: &ClientOptions,
    deadline: Instant,
    stop: &Stop,
) -> Result<Vec<SocketAddr>, PerfError> {
    let found = look_up(options, deadline, stop)?;
    let of_family: Vec<_> = found.into_iter().filter(|a| is_of(a.ip(), options.family)).collect();
    if of_family.is_empty() {
        return Err(no_address(options, None));
    }
    let Some(local) = options.bind else { return Ok(of_family) };
    let reachable: Vec<_> =
        of_family.iter().copied().filter(|a| a.is_ipv4() == local.is_ipv4()).collect();
    if reachable.is_empty() {
        let (ours, theirs) = if local.is_ipv4() { ("IPv4", "IPv6") } else { ("IPv6", "IPv4") };
        let reason = format!("{local} of --bind is {ours}, and {} is {theirs}", options.host);
        return Err(PerfError::Unreachable {
            peer: options.host.clone(),
            reason: io::Error::other(reason),
        });
    }
    Ok(reachable)
}

/// Looks names up on a separate thread: the resolver has its own timeout, which cannot be set.
fn look_up(
    options: &ClientOptions,
    deadline: Instant,
    stop: &Stop,
) -> Result<Vec<SocketAddr>, PerfError> {
    let host = unbracketed(&options.host);
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, options.port)]);
    }
    is_here(host)?;
    if let Some((host, port)) = with_port(&options.host) {
        return Err(PerfError::Usage(format!(
            "`{}` names a port, too: write {host} --port {port}",
            options.host
        )));
    }
    let (answer, answers) = channel();
    let target = (host.to_owned(), options.port);
    std::thread::Builder::new()
        .name("resolve".to_owned())
        .spawn(move || {
            // The caller has dropped the receiver if the time was up.
            let _ = answer.send(target.to_socket_addrs().map(Iterator::collect));
        })
        .map_err(|e| PerfError::system("starting a thread", e))?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match answers.recv_timeout(left.min(POLL_INTERVAL)) {
            Ok(Ok(addresses)) => return Ok(addresses),
            Ok(Err(error)) => return Err(no_address(options, Some(error.to_string()))),
            Err(RecvTimeoutError::Disconnected) => return Err(no_address(options, None)),
            Err(RecvTimeoutError::Timeout) if stop.is_called() => {
                return Err(PerfError::Interrupted);
            }
            Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                let reason = "the name service does not answer".to_owned();
                return Err(no_address(options, Some(reason)));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Checks that the interface of a link-local address (`fe80::1%eth0`) exists. Without this check
/// the resolver would report only that the host does not exist.
fn is_here(host: &str) -> Result<(), PerfError> {
    let Some((address, zone)) = host.split_once('%') else { return Ok(()) };
    let is_named = address.parse::<Ipv6Addr>().is_ok() && zone.parse::<u32>().is_err();
    match if_nametoindex(zone) {
        Err(errno) if is_named => {
            let what = format!("there is no interface {zone}: see `ip link`");
            Err(PerfError::system(what, io::Error::from_raw_os_error(errno as i32)))
        }
        _ => Ok(()),
    }
}

/// Returns the IPv6 address in brackets, as URLs have it, without its brackets.
fn unbracketed(host: &str) -> &str {
    host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host)
}

/// Splits `HOST:PORT` or `[IPV6]:PORT`, the syntax of other programs.
fn with_port(host: &str) -> Option<(&str, u16)> {
    let (name, port) = host.rsplit_once(':')?;
    let name = match name.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']')?,
        None if name.contains(':') => return None,
        None => name,
    };
    Some((name, port.parse().ok()?))
}

fn is_of(ip: IpAddr, family: Option<Family>) -> bool {
    match family {
        None => true,
        Some(Family::V4) => ip.is_ipv4(),
        Some(Family::V6) => ip.is_ipv6(),
    }
}

fn no_address(options: &ClientOptions, reason: Option<String>) -> PerfError {
    PerfError::NoAddress { host: options.host.clone(), family: options.family, reason }
}

/// Maximum delay before the thread notices a call to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn of(
        host: &str,
        family: Option<Family>,
        bind: Option<&str>,
    ) -> Result<Vec<SocketAddr>, String> {
        let bind = bind.map(|text| text.parse().unwrap());
        let options =
            ClientOptions { host: host.to_owned(), family, bind, ..ClientOptions::default() };
        let deadline = Instant::now() + Duration::from_secs(10);
        addresses(&options, deadline, &Stop::default()).map_err(|e| e.to_string())
    }

    #[test]
    fn a_host_followed_by_a_port_is_recognised() {
        assert_eq!(with_port("server.example:5201"), Some(("server.example", 5201)));
        assert_eq!(with_port("[2001:db8::1]:5201"), Some(("2001:db8::1", 5201)));
        for host in ["server.example", "2001:db8::1", "a:b", "a:99999", "[::1:5"] {
            assert_eq!(with_port(host), None, "{host}");
        }
    }

    #[test]
    fn an_ip_address_resolves_to_itself() {
        assert_eq!(of("127.0.0.1", None, None).unwrap(), ["127.0.0.1:5201".parse().unwrap()]);
        assert_eq!(of("[::1]", None, None).unwrap(), ["[::1]:5201".parse().unwrap()]);
        assert_eq!(of("::1", Some(Family::V6), None).unwrap(), ["[::1]:5201".parse().unwrap()]);
    }

    #[test]
    fn an_address_of_the_wrong_family_is_reported() {
        let reported = of("127.0.0.1", Some(Family::V6), None).unwrap_err();
        assert_eq!(
            reported,
            "127.0.0.1 has no address in IPv6: leave out -6, or name another host"
        );
        let reported = of("::1", None, Some("127.0.0.1")).unwrap_err();
        assert_eq!(reported, "no way to ::1: 127.0.0.1 of --bind is IPv4, and ::1 is IPv6");
    }

    #[test]
    fn a_missing_interface_is_reported() {
        let reported = of("fe80::1%nodevice0", None, None).unwrap_err();
        assert!(
            reported.starts_with("there is no interface nodevice0: see `ip link`"),
            "{reported}"
        );
    }

    #[test]
    fn a_call_to_stop_ends_the_lookup() {
        let stop = Stop::default();
        stop.call();
        let options = ClientOptions { host: "name.invalid".to_owned(), ..Default::default() };
        let outcome = addresses(&options, Instant::now() + Duration::from_secs(60), &stop);
        assert!(matches!(outcome, Err(PerfError::Interrupted | PerfError::NoAddress { .. })));
    }
}
