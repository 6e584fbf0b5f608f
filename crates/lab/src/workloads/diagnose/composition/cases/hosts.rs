//! Faults of the sending and of the receiving host, and healthy hosts.

use super::super::draft::{Dice, Draft, Path};
use super::super::proof::Proof;
use super::paths::three;

pub(super) fn shaper(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(30.0, 100.0), dice.between(2.0, 40.0));
    let shaped = three(rate * dice.between(0.15, 0.6));
    let latency = dice.whole(20, 80);
    let with_class = dice.chance(0.4);
    let setup = match with_class {
        true => format!(
            "tc qdisc add dev $INTERFACE root handle 1: htb default 1\n\
             tc class add dev $INTERFACE parent 1: classid 1:1 htb rate {shaped}mbit\n\
             tc qdisc add dev $INTERFACE parent 1:1 pfifo limit {}",
            ((shaped * f64::from(latency) / 12.0) as u32).max(20)
        ),
        false => format!(
            "tc qdisc add dev $INTERFACE root tbf rate {shaped}mbit burst 64kb latency {latency}ms"
        ),
    };
    let name = if with_class { "a class" } else { "a token bucket" };
    let proof = Proof::within(0.7 * shaped, 1.2 * shaped);
    Draft::bulk(Path::new(rate, rtt, 2.0), "shaper", proof)
        .key("setup-sender", setup)
        .details(format!("{name} of {shaped} Mbit/s"))
        .alone()
}

pub(super) fn send_buffer(dice: &mut Dice) -> Draft {
    let (path, rate, product) = long_path(dice);
    let bytes = (product * dice.between(0.2, 0.5)).max(20_000.0) as u64;
    let draft = Draft::bulk(path, "send-buffer", Proof::at_most(0.7 * rate));
    let draft = match dice.chance(0.5) {
        true => draft
            .key("setup-sender", format!("sysctl -qw net.ipv4.tcp_wmem='4096 {bytes} {bytes}'")),
        // The kernel doubles the size that a program asks for.
        false => draft.sends(format!("--buffer {}B", bytes / 2)),
    };
    draft.details(format!("a buffer of {bytes} bytes"))
}

pub(super) fn pacing(dice: &mut Dice) -> Draft {
    let (path, rate, _) = long_path(dice);
    let paced = three(rate * dice.between(0.1, 0.5));
    let send = format!("iperf3 -c $RECEIVER -p $PORT -t 60 --fq-rate {paced}m -C $CONGESTION");
    Draft::bulk(path, "pacing", Proof::within(0.7 * paced, 1.2 * paced))
        .key("sender", send)
        .key("receiver", "iperf3 -s -p $PORT")
        .details(format!("paced at {paced} Mbit/s"))
        .alone()
}

pub(super) fn route_window(dice: &mut Dice) -> Draft {
    let (path, rate, product) = long_path(dice);
    let segments = ((product * dice.between(0.1, 0.4) / 1448.0) as u32).max(4);
    let setup =
        format!("ip route replace 10.77.0.0/24 dev $INTERFACE src $SENDER cwnd lock {segments}");
    Draft::bulk(path, "route-limits", Proof::at_most(0.7 * rate))
        .key("setup-sender", setup)
        // The kernel applies the route's window only after an earlier connection to the host has
        // left metrics.
        .key(
            "sender",
            "timeout 0.5 $WEIR doctor-load send $RECEIVER:$PORT --chunk 1KiB --rate 1mbit || true\n\
             exec $WEIR doctor-load send $RECEIVER:$PORT",
        )
        .details(format!("the route's window of {segments} segments"))
        .alone()
}

pub(super) fn initial_window(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(100.0, 400.0), dice.between(15.0, 60.0));
    let kilobytes = dice.whole(30, 90);
    let setup = "ip route replace 10.77.0.0/24 dev $INTERFACE src $SENDER initcwnd 1";
    let draft =
        Draft::bulk(Path::new(rate, rtt, 2.0), "initial-window", Proof::at_most(0.5 * rate))
            .key("setup-sender", setup);
    with_a_connection_for_each(kilobytes, draft)
}

pub(super) fn short_connections(dice: &mut Dice) -> Draft {
    let rtt = dice.between(15.0, 50.0);
    let kilobytes = dice.whole(100, 300);
    let product = f64::from(kilobytes) * dice.between(2.0, 4.0);
    let rate = three(product * 8.0 / rtt).min(400.0);
    let proof = Proof::at_most(0.6 * rate);
    let draft = Draft::bulk(Path::new(rate, rtt, 1.5), "short-connections", proof);
    with_a_connection_for_each(kilobytes, draft)
}

/// Makes the sender open a connection for each `kilobytes`.
fn with_a_connection_for_each(kilobytes: u32, draft: Draft) -> Draft {
    draft
        .sends(format!("--chunk {kilobytes}kB --reconnects"))
        .key("ask", "port:5201")
        .traffic("many short")
        .details(format!("a connection for each {kilobytes} kB"))
}

pub(super) fn requests(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(20.0, 100.0), dice.between(8.0, 80.0));
    let most = (rate * rtt * 125.0 * 0.25).min(64_000.0);
    let bytes = dice.between(200.0, most.max(400.0)) as u32;
    Draft::bulk(Path::new(rate, rtt, 1.0), "request-response", Proof::at_most(0.5 * rate))
        .sends(format!("--chunk {bytes}B --asks"))
        .receives(format!("--chunk {bytes}B --answers"))
        .key("ask", "port:5201")
        .traffic("requests")
        .details(format!("{bytes} bytes, one at a time"))
}

pub(super) fn slow_application(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(20.0, 100.0), dice.between(2.0, 60.0));
    let wanted = three(rate * dice.between(0.05, 0.4));
    let chunk = dice.pick(&["4KiB", "16KiB", "32KiB"]);
    let proof = Proof::within(0.8 * wanted, 1.4 * wanted);
    Draft::bulk(Path::new(rate, rtt, 1.0), "application", proof)
        .sends(format!("--chunk {chunk} --rate {wanted}mbit"))
        .key("ask", "port:5201")
        .traffic("paced")
        .details(format!("writes {wanted} Mbit/s"))
}

pub(super) fn quota_of_sender(dice: &mut Dice) -> Draft {
    let percent = dice.whole(3, 12);
    Draft::bulk(Path::Cable, "quota", Proof::default())
        .key("quota-sender", format!("{percent}%"))
        .details(format!("{percent} % of a core"))
}

pub(super) fn output_limit(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(40.0, 100.0), dice.between(8.0, 40.0));
    let kilobytes = (rate * dice.between(0.1, 0.25) * 125.0).round();
    let setup = format!(
        "nft add table ip fault\n\
         nft 'add chain ip fault out {{ type filter hook output priority 0; }}'\n\
         nft add rule ip fault out tcp dport $PORT limit rate over {kilobytes} kbytes/second drop"
    );
    Draft::bulk(Path::new(rate, rtt, 1.5), "local-drops", Proof::at_most(0.7 * rate))
        .key("setup-sender", setup)
        .details(format!("drops what exceeds {kilobytes} kB/s"))
        .alone()
}

pub(super) fn local_ports(dice: &mut Dice) -> Draft {
    let (first, count) = (dice.whole(40_000, 50_000), dice.whole(4, 20));
    let setup = format!("sysctl -qw net.ipv4.ip_local_port_range='{first} {}'", first + count - 1);
    Draft::bulk(Path::Cable, "local-ports", Proof::default())
        .key("setup-sender", setup)
        .sends(format!("--connections {}", count + 30))
        .traffic("connects")
        .details(format!("{count} local ports"))
}

pub(super) fn input_filter(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(10.0, 100.0), dice.between(2.0, 50.0));
    let setup = "nft add table ip fault\n\
                 nft 'add chain ip fault in { type filter hook input priority 0; }'\n\
                 nft add rule ip fault in tcp sport $PORT drop";
    Draft::bulk(Path::new(rate, rtt, 1.0), "input-filter", Proof::default())
        .key("setup-sender", setup)
        .key("watch-at-least", "3")
        .traffic("connects")
        .alone()
}

pub(super) fn receive_buffer(dice: &mut Dice) -> Draft {
    let (path, rate, product) = long_path(dice);
    let bytes = (product * dice.between(0.1, 0.35)).max(8_000.0) as u64;
    let draft = Draft::bulk(path, "receiver-window", Proof::at_most(0.75 * rate));
    let draft = match dice.chance(0.5) {
        true => draft.key(
            "setup-receiver",
            format!("sysctl -qw net.ipv4.tcp_rmem='4096 {0} {0}'", 2 * bytes),
        ),
        false => draft.receives(format!("--buffer {bytes}B")),
    };
    draft.details(format!("a window of {bytes} bytes"))
}

pub(super) fn no_window_scaling(dice: &mut Dice) -> Draft {
    let rtt = dice.between(30.0, 80.0);
    let rate = three((65_535.0 * 8.0 / rtt / 1e3) * dice.between(2.5, 6.0)).min(120.0);
    Draft::bulk(Path::new(rate, rtt, 1.0), "no-window-scaling", Proof::at_most(0.7 * rate))
        .key("setup-receiver", "sysctl -qw net.ipv4.tcp_window_scaling=0")
}

pub(super) fn slow_reader(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(20.0, 100.0), dice.between(1.0, 40.0));
    // The rate is low, so that the reader limits the transfer before a buffer of 128 KiB does.
    let reads = three((rate * dice.between(0.1, 0.5)).min(500.0 / rtt));
    let chunk = dice.pick(&["4KiB", "16KiB", "64KiB"]);
    let at_receiver = dice.chance(0.4);
    let draft = Draft::bulk(Path::new(rate, rtt, 2.0), "slow-reader", Proof::at_most(0.9 * rate))
        .receives(format!("--buffer 128KiB --chunk {chunk} --rate {reads}mbit"))
        .details(format!("reads {reads} Mbit/s by {chunk}"));
    if at_receiver { draft.key("side", "receiver").alone() } else { draft }
}

pub(super) fn never_reads(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(20.0, 100.0), dice.between(1.0, 40.0));
    let buffer = dice.whole(32, 256);
    Draft::bulk(Path::new(rate, rtt, 1.0), "slow-reader", Proof::at_most(0.5 * rate))
        .receives(format!("--never-reads --buffer {buffer}KiB"))
        .alone()
}

pub(super) fn quota_of_receiver(dice: &mut Dice) -> Draft {
    let percent = dice.whole(3, 12);
    Draft::bulk(Path::Cable, "quota", Proof::default())
        .key("quota-receiver", format!("{percent}%"))
        .key("side", "receiver")
        .details(format!("{percent} % of a core"))
}

pub(super) fn slow_answers(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(20.0, 100.0), dice.between(1.0, 30.0));
    let pause = (rtt * 5.0).max(f64::from(dice.whole(100, 400)));
    Draft::bulk(Path::new(rate, rtt, 1.0), "slow-answers", Proof::at_most(0.2 * rate))
        .sends("--chunk 200B --asks")
        .receives(format!("--chunk 200B --answers --pause {pause}ms"))
        .key("ask", "port:5201")
        .traffic("requests")
        .details(format!("answers after {pause} ms"))
}

pub(super) fn accept_queue(dice: &mut Dice) -> Draft {
    let (backlog, more) = (dice.whole(1, 8), dice.whole(20, 60));
    Draft::bulk(Path::Cable, "accept-queue", Proof::default())
        .sends(format!("--connections {}", backlog + more))
        .receives(format!("--backlog {backlog} --never-accepts"))
        .key("side", "receiver")
        .traffic("connects")
        .details(format!("a queue of {backlog}"))
}

pub(super) fn nobody_listens(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(10.0, 100.0), dice.between(1.0, 60.0));
    let draft = Draft::bulk(Path::new(rate, rtt, 1.0), "refused", Proof::default());
    let draft = match dice.chance(0.5) {
        true => draft.key("receiver", "none"),
        false => draft.key(
            "setup-receiver",
            "nft add table ip fault\n\
             nft 'add chain ip fault in { type filter hook input priority 0; }'\n\
             nft add rule ip fault in tcp dport $PORT reject with tcp reset",
        ),
    };
    draft.traffic("connects")
}

pub(super) fn idle(_: &mut Dice) -> Draft {
    Draft::bulk(Path::Cable, "nothing", Proof::default())
        .key("sender", "none")
        .key("receiver", "none")
        .traffic("none")
}

pub(super) fn rare_requests(dice: &mut Dice) -> Draft {
    let (bytes, pause) = (dice.whole(50, 1400), dice.whole(15, 100));
    let rtt = dice.between(0.5, f64::from(pause) / 5.0);
    Draft::bulk(Path::new(dice.between(20.0, 100.0), rtt, 1.0), "nothing", Proof::at_most(10.0))
        .sends(format!("--chunk {bytes}B --asks --pause {pause}ms"))
        .receives(format!("--chunk {bytes}B --answers"))
        .traffic("requests")
        .details(format!("{bytes} bytes each {pause} ms"))
        .alone()
}

pub(super) fn rare_connections(dice: &mut Dice) -> Draft {
    let pause = dice.whole(15, 80);
    Draft::bulk(Path::Cable, "nothing", Proof::default())
        .sends(format!("--chunk 1KB --reconnects --pause {pause}ms"))
        .traffic("many short")
        .details(format!("a connection each {pause} ms"))
}

pub(super) fn datagrams(dice: &mut Dice) -> Draft {
    let rate = dice.between(1.0, 20.0);
    Draft::bulk(Path::Cable, "nothing", Proof::within(0.7 * rate, 1.4 * rate))
        .sends(format!("--udp --chunk 1200B --rate {rate}mbit"))
        .receives("--udp")
        .key("side", "receiver")
        .traffic("datagrams")
        .details(format!("{rate} Mbit/s"))
}

/// Drafts a healthy case in which a program of another user keeps a core busy at the lowest
/// priority.
pub(super) fn busy_neighbour(dice: &mut Dice) -> Draft {
    let rate = dice.between(2.0, 30.0);
    Draft::bulk(Path::Cable, "nothing", Proof::within(0.8 * rate, 1.3 * rate))
        .key(
            "sender",
            format!(
                "nice -n 19 sh -c 'while :; do :; done' &\n\
                 exec $WEIR doctor-load send $RECEIVER:$PORT --chunk 16KiB --rate {rate}mbit"
            ),
        )
        .traffic("paced")
        .details(format!("{rate} Mbit/s beside a busy program"))
}

/// Drafts a full link behind a TAP device, which reports its speed as a network card does.
pub(super) fn full_link(dice: &mut Dice) -> Draft {
    let rate = dice.whole(20, 150);
    let queue = dice.whole(20, 60);
    Draft::bulk(Path::Cable, "nothing", Proof::at_least(0.9 * f64::from(rate)))
        .key(
            "receiver",
            "read pid rest < /proc/self/stat\n\
             echo $pid > $TMPDIR/far\n\
             exec $WEIR doctor-load receive 0.0.0.0:$PORT",
        )
        .key(
            "sender",
            format!(
                "until read far < $TMPDIR/far; do sleep 0.02; done\n\
                 rm -f $TMPDIR/far\n\
                 $WEIR link up --a tap:near0 --b pid:$far:tap:far0 --address-a 10.66.0.1/24 \
                 --address-b 10.66.0.2/24 --rate {rate}mbit --queue droptail:{queue}KiB \
                 --no-real-time --spin 0us > $TMPDIR/link.out 2>&1 &\n\
                 until ip link show near0 > /dev/null 2>&1; do sleep 0.02; done\n\
                 ethtool -s near0 speed {rate} duplex full\n\
                 exec $WEIR doctor-load send 10.66.0.2:$PORT"
            ),
        )
        .details(format!("a link of {rate} Mbit/s"))
}

/// Draws a path. Returns the path, its rate in Mbit/s, and its bandwidth-delay product in bytes,
/// which is at least 60 kB.
fn long_path(dice: &mut Dice) -> (Path, f64, f64) {
    let rtt = dice.between(15.0, 80.0);
    let least = 60_000.0 / rtt / 125.0;
    let rate = dice.between(least.max(15.0), 100.0);
    (Path::new(rate, rtt, 1.5), rate, rate * rtt * 125.0)
}
