//! The combinations of axis values that a lab chooses.

use super::schema::{CellFilter, Document, FormSpec};
use results::Axes;
use std::collections::BTreeSet;
use toml::Spanned;

/// Returns the combinations of axis values that a form chooses. The last axis varies fastest.
pub(crate) fn places(lab: &Document, form: &FormSpec) -> Vec<Axes> {
    written_out(lab, chosen(lab, form))
}

/// Returns the places of all forms.
pub(crate) fn all_places(lab: &Document) -> Vec<Axes> {
    written_out(lab, lab.form.values().flat_map(|form| chosen(lab, form)).collect())
}

/// Returns a place for each axis value that no place of `places` has: a copy of the first place
/// with this axis value.
pub(crate) fn of_other_values(lab: &Document, places: &[Axes]) -> Vec<Axes> {
    let Some(first) = places.first() else { return Vec::new() };
    let values = lab.axes.iter().flat_map(|(axis, values)| {
        values.get_ref().iter().map(move |value| (axis, value.get_ref()))
    });
    values
        .filter(|(axis, value)| !places.iter().any(|axes| axes.get(*axis) == Some(*value)))
        .map(|(axis, value)| {
            let mut other = first.clone();
            other.insert(axis.clone(), value.clone());
            other
        })
        .collect()
}

/// Returns the number of combinations that `filter` chooses.
pub(crate) fn count(lab: &Document, filter: &CellFilter) -> usize {
    choices(lab, filter).iter().map(Vec::len).fold(1, usize::saturating_mul)
}

/// Whether `filter` chooses the cell at `axes`.
pub(crate) fn agrees(lab: &Document, filter: &CellFilter, axes: &Axes) -> bool {
    axes.iter().all(|(axis, value)| match named(filter, axis) {
        Some(values) => values.iter().any(|one| one.get_ref() == value),
        None => usual(lab, axis).is_none_or(|usual| usual == value),
    })
}

/// Returns the value of `axis` in cells that a filter chooses without naming the axis.
pub(crate) fn usual<'a>(lab: &'a Document, axis: &str) -> Option<&'a str> {
    lab.usual.get(axis).map(|value| value.get_ref().as_str())
}

/// Returns the place among `places` that has all named values. If several places have these values,
/// returns the place with the fewest unusual values, or else the first place.
pub(crate) fn nearest_to_usual<'a>(
    lab: &Document,
    named: &[(&str, &str)],
    places: impl Iterator<Item = &'a Axes>,
) -> Option<&'a Axes> {
    let agrees = |axes: &&Axes| {
        named.iter().all(|(axis, value)| axes.get(*axis).is_some_and(|one| one == value))
    };
    let unusual = |axes: &&Axes| {
        let differs = |(axis, value): &(&String, &String)| {
            !named.iter().any(|(name, _)| name == axis)
                && usual(lab, axis).is_some_and(|usual| usual != *value)
        };
        axes.iter().filter(differs).count()
    };
    places.filter(agrees).min_by_key(unusual)
}

fn named<'a>(filter: &'a CellFilter, axis: &str) -> Option<&'a Vec<Spanned<String>>> {
    filter.get(axis)
}

/// Returns the places that a form chooses. A place has, for each axis, the index of a value.
fn chosen(lab: &Document, form: &FormSpec) -> BTreeSet<Vec<usize>> {
    let all = lab.axes.values().map(|values| (0..values.get_ref().len()).collect());
    let places: BTreeSet<Vec<usize>> = match form.cells.as_slice() {
        [] => product(&all.collect::<Vec<_>>()),
        filters => filters.iter().flat_map(|filter| product(&choices(lab, filter))).collect(),
    };
    let worlds =
        lab.draw.as_ref().and_then(|draw| lab.axes.get_index_of(draw.get_ref().axis.get_ref()));
    match worlds.zip(form.draws.as_ref()) {
        Some((axis, most)) => {
            let most = *most.get_ref() as usize;
            places.into_iter().filter(|place| place[axis] < most).collect()
        }
        None => places,
    }
}

/// Returns, for each axis, the indices of the values that `filter` allows.
fn choices(lab: &Document, filter: &CellFilter) -> Vec<Vec<usize>> {
    lab.axes
        .iter()
        .map(|(axis, values)| {
            let values = values.get_ref().iter().map(|value| value.get_ref().as_str());
            let wanted = |value: &str| match named(filter, axis) {
                Some(named) => named.iter().any(|one| one.get_ref() == value),
                None => usual(lab, axis).is_none_or(|usual| usual == value),
            };
            values.enumerate().filter(|(_, value)| wanted(value)).map(|(place, _)| place).collect()
        })
        .collect()
}

fn product(choices: &[Vec<usize>]) -> BTreeSet<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for places in choices {
        all = all
            .into_iter()
            .flat_map(|before: Vec<usize>| {
                places.iter().map(move |place| [before.as_slice(), &[*place]].concat())
            })
            .collect();
    }
    all.into_iter().collect()
}

fn written_out(lab: &Document, places: BTreeSet<Vec<usize>>) -> Vec<Axes> {
    let written = |place: Vec<usize>| {
        let values = place.into_iter().zip(&lab.axes);
        let value = values.filter_map(|(place, (axis, values))| {
            Some((axis.clone(), values.get_ref().get(place)?.get_ref().clone()))
        });
        value.collect()
    };
    places.into_iter().map(written).collect()
}
