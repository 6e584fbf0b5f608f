//! Compatibility of `results.json`: older writers, absent keys and `null` in place of numbers.

use serde::Deserialize;

use super::{Cell, NOT_RUN, Results};

/// Moves the reason of cells that were not run from `failed`, where older writers stored it. Drops
/// the comparisons in which older writers ranked such a cell worst.
pub(super) fn without_failures_of_cells_not_run(mut results: Results) -> Results {
    for cell in &mut results.cells {
        let reason = cell.failed.as_deref().and_then(|reason| reason.strip_prefix(NOT_RUN));
        if let Some(reason) = reason.map(str::to_owned) {
            (cell.failed, cell.not_run) = (None, Some(reason));
        }
    }
    let cells = &results.cells;
    results.comparisons.retain(|one| {
        let compared =
            |cell: &&Cell| cell.axes == one.axes && [&one.a, &one.b].contains(&&cell.system);
        cells.iter().filter(compared).all(|cell| cell.not_run.is_none())
    });
    results
}

pub(super) fn yes() -> bool {
    true
}

// serde_json writes a non-finite number as null. A single such value must not make a whole run
// unreadable.
pub(super) fn null_is_nan<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

pub(super) fn interval<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<[f64; 2]>, D::Error> {
    let ends = Option::<[Option<f64>; 2]>::deserialize(deserializer)?;
    Ok(ends.and_then(|[low, high]| Some([low?, high?])))
}

pub(super) fn null_is_infinite<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}

pub(super) fn infinite_interval<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<[f64; 2]>, D::Error> {
    let ends = Option::<[Option<f64>; 2]>::deserialize(deserializer)?;
    Ok(ends.map(|ends| ends.map(|end| end.unwrap_or(f64::INFINITY))))
}

// serde calls the functions of `skip_serializing_if` with a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
pub(super) fn is_false(flag: &bool) -> bool {
    !flag
}

#[allow(clippy::trivially_copy_pass_by_ref)]
pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}
