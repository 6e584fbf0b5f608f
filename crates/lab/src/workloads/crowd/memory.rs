//! Memory of the two programs between the workload's client and server.

use crate::bench::machine::Roles;
use crate::model::{Failure, Measurement};
use probe::process::Resident;
use units::Bytes;

/// The memory of each program. `None` without programs in between: the kernel's own memory belongs
/// to no process.
#[derive(Debug)]
pub(in crate::workloads) struct Memory {
    client: Option<Resident>,
    server: Option<Resident>,
}

impl Memory {
    pub(in crate::workloads) fn read(roles: &Roles) -> Result<Self, Failure> {
        let of = |pids: &[u32]| match pids {
            [] => Ok(None),
            [root, ..] => Resident::tree(*root).map(Some),
        };
        Ok(Self { client: of(&roles.client)?, server: of(&roles.server)? })
    }

    /// Records the memory with `count` more connections than `before`.
    pub(in crate::workloads) fn account(
        &self,
        before: &Self,
        count: usize,
        result: &mut Measurement,
    ) {
        for (end, now, then) in self.ends(before) {
            result.record(&format!("memory_mib.{end}"), Some(mebibytes(now.now)));
            let grown = (now.now - then.now).count() as f64 / 1024.0;
            let each = (count > 0).then(|| grown / count as f64);
            result.record(&format!("memory_kib_each.{end}"), each);
        }
    }

    pub(in crate::workloads) fn account_peak(&self, result: &mut Measurement) {
        for (end, now, _) in self.ends(self) {
            result.record(&format!("memory_peak_mib.{end}"), Some(mebibytes(now.peak)));
        }
    }

    fn ends<'a>(
        &'a self,
        before: &'a Self,
    ) -> impl Iterator<Item = (&'static str, &'a Resident, &'a Resident)> {
        let client = self.client.as_ref().zip(before.client.as_ref());
        let server = self.server.as_ref().zip(before.server.as_ref());
        let ends = [("client", client), ("server", server)].into_iter();
        ends.filter_map(|(end, both)| both.map(|(now, then)| (end, now, then)))
    }
}

fn mebibytes(bytes: Bytes) -> f64 {
    bytes.count() as f64 / 1_048_576.0
}
