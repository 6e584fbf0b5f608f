//! Texts for a server's error numbers, which iperf3 defines in `iperf_api.h`. Covers the numbers
//! that a server sends and that help a user.

use crate::PerfError;
use rustix::io::Errno;
use std::io;

pub(super) fn reported(peer: &str, code: i32, errno: i32) -> PerfError {
    let reason = match (words(code), errno) {
        (_, errno) if code == 205 && errno == Errno::MSGSIZE.raw_os_error() => {
            "its datagrams do not fit the path's MTU whole: take a smaller --length".to_owned()
        }
        (_, errno) if has_errno(code) && errno == Errno::MFILE.raw_os_error() => {
            "it may open no more files: raise its `ulimit -n`, or ask for fewer streams".to_owned()
        }
        (words, 1..) if has_errno(code) => format!("{words} ({})", system_words(errno)),
        (words, _) => words,
    };
    PerfError::PeerFailed { peer: peer.to_owned(), reason }
}

fn words(code: i32) -> String {
    let text = match code {
        5 => "the test is longer than it allows: ask for less with --time",
        6 => "these are more streams than it allows: ask for fewer with --parallel",
        7 | 20 => "it cannot take blocks of this size: change --length",
        8 => "it cannot take socket buffers of this size: ask for less with --window",
        10 => "it cannot take a segment size so large: change --set-mss",
        11 => "it cannot send without copying: leave --zerocopy out",
        12 => "it cannot leave out so much at the start: ask for less with --omit",
        13 => "it does not support what was requested",
        15 => "the burst behind --bitrate is too large",
        17 => "its log file cannot be written",
        21 => "it cannot take this type of service: change --tos",
        27 => "the rate is above its limit: ask for less with --bitrate",
        34 => {
            "it reads or writes a file (--file), which iperf3 cannot do over UDP: leave --udp out"
        }
        37 | 160 => "the test is longer than its limit: ask for less with --time",
        39 => "its system cannot discard data without a copy: leave --skip-rx-copy out",
        101 => "it could not prepare the test",
        102 | 202 => "it could not listen for the streams",
        105 | 204 => "it could not accept the streams",
        106..=108 | 111..=113 => "it lost the control connection",
        109 => "its control connection was closed",
        110 => "it received something unexpected; its version may be too old",
        114 => "it did not understand the parameters",
        115..=117 => "the results could not be exchanged",
        118 => "it could not wait for its sockets",
        120 => "it was stopped",
        121 => "it is busy with another test: try again later",
        122 => "it could not set --no-delay",
        123 => "it could not set the segment size of --set-mss",
        124 | 130 => "it could not set the socket buffers of --window",
        125 | 126 => "it could not set the type of service of --tos",
        127 => "it could not set the flow label of --flowlabel",
        132 => "it has no such CPU: change the second number of --affinity",
        134 => {
            "it does not have the congestion control of --congestion: see its net.ipv4.tcp_available_congestion_control"
        }
        140 => "it could not set the pacing of --fq-rate",
        141 => {
            "its kernel gives smaller socket buffers than --window asks: raise its net.core.rmem_max and wmem_max, or ask for less"
        }
        142 => {
            "it did not accept the account: name it with --username and --rsa-public-key where the server has \
             accounts, leave both out where it has none; the clocks must agree, and an iperf3 before 3.17 \
             needs --use-pkcs1-padding"
        }
        144 => "it received no more data: a firewall may stop the data, or the path broke",
        145 => "it could not forbid fragments (--dont-fragment)",
        148 => "it could not set the time limit of its --snd-timeout",
        150..=154 | 159 => "it could not run its threads",
        200 | 201 => "it could not make the streams",
        203 => "it could not connect the streams",
        205 => "it could not send on a stream",
        206 => "it could not receive on a stream",
        207 => "a stream was closed early",
        208 => "the streams' numbers do not match",
        300 | 301 => "it could not set a timer",
        _ => return format!("iperf3's error {code}"),
    };
    text.to_owned()
}

/// True for codes with which iperf3 reports errno (`iperf_strerror`). With other codes, errno is
/// left over from an earlier call.
fn has_errno(code: i32) -> bool {
    const WITHOUT: [i32; 13] = [109, 110, 119, 120, 121, 127, 131, 141, 142, 144, 160, 207, 208];
    code >= 100 && !WITHOUT.contains(&code)
}

fn system_words(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    // Drops Rust's "(os error N)".
    text.rsplit_once(" (os error").map_or(text.clone(), |(words, _)| words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iperf3s_error_numbers_become_texts() {
        let text = |code, errno| reported("host", code, errno).to_string();
        assert!(text(27, 0).ends_with("above its limit: ask for less with --bitrate"));
        assert!(!text(141, 9).contains("Bad file descriptor"));
        assert!(text(39, 0).ends_with("leave --skip-rx-copy out"));
        assert!(text(134, 2).ends_with("(No such file or directory)"));
        assert!(text(205, 90).ends_with("take a smaller --length"));
        assert!(text(205, 32).ends_with("send on a stream (Broken pipe)"));
        assert!(text(204, 24).ends_with("raise its `ulimit -n`, or ask for fewer streams"));
        assert!(!text(144, 24).contains("ulimit"));
        assert_eq!(text(999, 0), "host failed: iperf3's error 999");
        assert_eq!(text(-5, -7), "host failed: iperf3's error -5");
    }
}
