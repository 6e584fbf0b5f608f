use crate::{HostError, Namespace};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};

/// Makes `cpus` process the packets that arrive at `interface` (receive packet steering,
/// Documentation/networking/scaling.rst). Without this setting the sending thread processes the
/// packets. Over a veth pair, the emulator's thread sends, and a host's TCP may work for
/// milliseconds on one acknowledgement.
///
/// The setting is in sysfs, which shows the namespace from which it was mounted, so the thread that
/// sets it makes a private mount.
pub fn steer_receiving(
    namespace: &Namespace,
    interface: &str,
    cpus: &[usize],
) -> Result<(), HostError> {
    namespace.run(|| {
        let doing = || format!("steering what {interface} receives");
        let failed = |errno: nix::errno::Errno| HostError::io(doing(), errno);
        unshare(CloneFlags::CLONE_NEWNS).map_err(failed)?;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>).map_err(failed)?;
        mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), None::<&str>)
            .map_err(failed)?;
        let setting = format!("/sys/class/net/{interface}/queues/rx-0/rps_cpus");
        // Open without O_CREAT, because sysfs would return EACCES for a file that does not exist.
        let file = OpenOptions::new().write(true).open(setting);
        let written = file.and_then(|mut file| file.write_all(mask(cpus).as_bytes()));
        written.map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                let advice = "boot a kernel with CONFIG_RPS";
                HostError::NotSupported { feature: "RPS", doing: doing(), advice }
            }
            _ => HostError::io(doing(), error),
        })
    })
}

/// Formats a CPU mask as the kernel does: groups of 32 bits in hexadecimal, the highest first.
fn mask(cpus: &[usize]) -> String {
    let groups = cpus.iter().max().map_or(1, |highest| highest / 32 + 1);
    let mut words = vec![0_u32; groups];
    for cpu in cpus {
        words[cpu / 32] |= 1 << (cpu % 32);
    }
    let words: Vec<String> = words.iter().rev().map(|word| format!("{word:08x}")).collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_masks_are_written_in_groups_of_32_bits() {
        assert_eq!(mask(&[0]), "00000001");
        assert_eq!(mask(&[1, 3]), "0000000a");
        assert_eq!(mask(&[0, 33]), "00000002,00000001");
    }
}
