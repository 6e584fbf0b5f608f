//! Prints the readings of every probe over one second: `cargo run -p weir-probe --example
//! snapshot`.

use std::error::Error;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use probe::cgroup::{CgroupPaths, Level};
use probe::cpu::CpuSnapshot;
use probe::interface::InterfaceSnapshot;
use probe::machine::Machine;
use probe::process::{KsoftirqdSnapshot, Processes, Thread};
use probe::qdisc::QdiscSnapshot;
use probe::snmp::SnmpSnapshot;
use probe::softirqs::SoftirqSnapshot;
use probe::softnet::SoftnetSnapshot;
use probe::tcp::{self, Filter};

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:#?}", timed("machine", Machine::read)?);

    let own = std::process::id();
    let cpu = timed("cpu", CpuSnapshot::read)?;
    let tree = timed("process tree", || Processes::tree(own))?;
    let thread = timed("own thread", Thread::own)?;
    let ksoftirqd = timed("ksoftirqd", KsoftirqdSnapshot::read);
    let softirqs = timed("softirqs", SoftirqSnapshot::read)?;
    let softnet = timed("softnet", SoftnetSnapshot::read)?;
    let snmp = timed("snmp", SnmpSnapshot::read)?;
    println!("{:#?}", timed("interfaces", InterfaceSnapshot::read)?.interfaces);
    println!("{:#?}", timed("qdiscs", QdiscSnapshot::read)?.qdiscs);
    let groups = || Level::all_at(&CgroupPaths::own()?);
    println!("{:#?}", timed("cgroup", groups));
    timed("tcp sockets", || tcp::sockets(&Filter::all()))?;

    std::thread::sleep(Duration::from_secs(1));

    let spent = CpuSnapshot::read()?.since(&cpu);
    for (core, times) in &spent.cores {
        println!("cpu{core}: {:?}", times.shares());
    }
    println!("tree: {:?}", Processes::tree(own)?.since(&tree).sum());
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
    println!("{:#?}", SoftnetSnapshot::read()?.since(&softnet));
    println!("{:?}", SnmpSnapshot::read()?.since(&snmp));
    for socket in tcp::sockets(&Filter::all())? {
        println!("{socket:?}");
    }

    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (local, remote) = (client.local_addr()?, client.peer_addr()?);
    timed("one connection", || tcp::connection(local, remote))?;
    timed("tcp_info of a socket", || tcp::of_socket(&client))?;
    Ok(())
}

fn timed<T>(what: &str, read: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = read();
    println!("[{what}: {:?}]", start.elapsed());
    result
}
