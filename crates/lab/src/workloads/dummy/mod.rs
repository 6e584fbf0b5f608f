//! A workload for tests only. The workload consists of this folder and one line in the registry.

mod tests;

use super::{CellWorkload, Workload};
use crate::bench::simulator::SimulatorStep;
use crate::model::file::{Document, FileError, Key, SystemKind};
use crate::model::{Failure, Measurement};
use results::Axes;

#[derive(Debug)]
pub(crate) struct Dummy;

impl Workload for Dummy {
    fn kind(&self) -> &'static str {
        "dummy"
    }

    fn systems(&self) -> &'static [SystemKind] {
        &[SystemKind::Tcp]
    }

    fn method(&self) -> Vec<(&'static str, String)> {
        vec![("drops", "as many as the file asks for".to_owned())]
    }

    fn at(&self, document: &Document, axes: &Axes) -> Result<Box<dyn CellWorkload>, FileError> {
        self.ends(document, axes)?;
        let drops = document.workload_count(axes, PACKETS, 1..=1000)?;
        Ok(Box::new(Drops(drops.unwrap_or(1))))
    }

    fn keys(&self) -> &'static [Key] {
        &[PACKETS]
    }

    fn refused_by_machine(&self) -> Option<&'static str> {
        Some("this workload exists only in tests")
    }
}

#[derive(Debug)]
struct Drops(u32);

impl CellWorkload for Drops {
    fn simulate(&self, _step: &SimulatorStep<'_>) -> Result<Measurement, Failure> {
        let mut result = Measurement::default();
        result.record("drops", Some(f64::from(self.0)));
        Ok(result)
    }
}

const PACKETS: Key = Key::count("packets");
