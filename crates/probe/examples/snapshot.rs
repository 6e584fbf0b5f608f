//! Prints the readings of every probe over one second: `cargo run -p weir-probe --example
//! snapshot`.

use std::error::Error;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use probe::cgroup::CgroupSnapshot;
use probe::cpu::CpuSnapshot;
use probe::interface::InterfaceSnapshot;
use probe::interrupts::InterruptSnapshot;
use probe::machine::Machine;
use probe::pressure::{PressureSnapshot, Resource};
use probe::process::{KsoftirqdSnapshot, Processes, Thread};
use probe::qdisc::QdiscSnapshot;
use probe::sampler::{CpuProbe, KsoftirqdProbe, ProcessProbe, QdiscProbe, Sampler, TcpProbe};
use probe::snmp::SnmpSnapshot;
use probe::softirqs::SoftirqSnapshot;
use probe::softnet::SoftnetSnapshot;
use probe::tcp::{self, Filter};
use units::Span;

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:#?}", timed("machine", Machine::read)?);

    let own = std::process::id();
    let cpu = timed("cpu", CpuSnapshot::read)?;
    let tree = timed("process tree", || Processes::tree(own))?;
    let thread = timed("own thread", Thread::own)?;
    let ksoftirqd = timed("ksoftirqd", KsoftirqdSnapshot::read);
    let softirqs = timed("softirqs", SoftirqSnapshot::read)?;
    let interrupts = timed("interrupts", InterruptSnapshot::read)?;
    let softnet = timed("softnet", SoftnetSnapshot::read)?;
    let snmp = timed("snmp", SnmpSnapshot::read)?;
    let interfaces = timed("interfaces", InterfaceSnapshot::read)?;
    let qdiscs = timed("qdiscs", QdiscSnapshot::read)?;
    let cgroup = timed("cgroup", CgroupSnapshot::own);
    timed("tcp sockets", || tcp::sockets(&Filter::all()))?;

    std::thread::sleep(Duration::from_secs(1));

    let spent = CpuSnapshot::read()?.since(&cpu);
    for (core, times) in &spent.cores {
        println!("cpu{core}: {:?}", times.shares());
    }
    println!("tree: {:?}", tree.again()?.since(&tree).sum());
    println!("thread: {:?}", Thread::own()?.since(&thread));
    match ksoftirqd {
        Ok(before) => {
            let spent = timed("ksoftirqd again", || before.again())?.since(&before);
            println!("ksoftirqd: {:?}", spent.cores);
        }
        Err(error) => println!("ksoftirqd: {error}"),
    }
    let spent = SoftirqSnapshot::read()?.since(&softirqs);
    println!("NET_RX softirqs: {:?}", spent.total("NET_RX"));
    let spent = InterruptSnapshot::read()?.since(&interrupts);
    println!("interrupts by core: {:?}", spent.per_core());
    println!("{:#?}", SoftnetSnapshot::read()?.since(&softnet));
    let spent = SnmpSnapshot::read()?.since(&snmp);
    println!("counters: {:?}", spent.changed().collect::<Vec<_>>());
    println!("{:#?}", InterfaceSnapshot::read()?.since(&interfaces).interfaces);
    for qdisc in QdiscSnapshot::read()?.since(&qdiscs).qdiscs {
        println!("{qdisc:?}");
    }
    match cgroup {
        Ok(before) => println!("{:?}", CgroupSnapshot::own()?.since(&before)),
        Err(error) => println!("cgroup: {error}"),
    }
    for resource in Resource::ALL {
        println!("{} pressure: {:?}", resource.name(), PressureSnapshot::read(resource));
    }
    for socket in tcp::sockets(&Filter::all())? {
        println!("{socket:?}");
    }

    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (local, remote) = (client.local_addr()?, client.peer_addr()?);
    timed("one connection", || tcp::connection(local, remote))?;
    timed("tcp_info of a socket", || tcp::of_socket(&client))?;

    let running = Sampler::every(Span::from_millis(100))
        .probe(CpuProbe::new())
        .probe(ProcessProbe::tree("self", own)?)
        .probe(KsoftirqdProbe::new()?)
        .probe(QdiscProbe::new())
        .probe(TcpProbe::connection(local, remote))
        .start()?;
    std::thread::sleep(Duration::from_secs(2));
    let recording = running.stop()?;
    for series in &recording.series {
        let values: Vec<_> = series.points.iter().map(|point| point.value.round()).collect();
        println!("{} {}: {values:?}", series.metric, series.subject);
    }
    println!(
        "{} samples, {} missed, cost {} of a core, failures {:?}",
        recording.samples,
        recording.missed,
        recording.cost().unwrap_or_default(),
        recording.failures
    );
    Ok(())
}

fn timed<T>(what: &str, read: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = read();
    println!("[{what}: {:?}]", start.elapsed());
    result
}
