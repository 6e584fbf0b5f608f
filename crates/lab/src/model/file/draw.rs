//! `[draw]`: an axis whose values are worlds, each drawn by the seed.

use super::locate::FileError;
use super::schema::Document;
use indexmap::IndexMap;
use link::{Stream, mix};
use settings::table;
use toml::Spanned;
use units::Share;

table! {
    /// The table `[draw]`. Each value of `axis` is one world: a number and the quantities that were
    /// drawn for the world. `{NAME}` stands for the drawn quantity NAME in the cells of that world.
    #[derive(Debug, Clone)]
    pub struct DrawSpec {
        pub axis: Spanned<String>,
        pub count: Spanned<u32>,
        /// Quantities of every world, as texts with ranges: `2mbit..300mbit`.
        pub each: IndexMap<Spanned<String>, Spanned<String>>,
        /// Quantities of some worlds, which replace quantities of `each`.
        pub either: Vec<EitherSpec> = vec![],
    }
}

table! {
    /// A choice of quantities. A world gets at most one choice of each `group`. `share` is the
    /// share of worlds with the choice.
    #[derive(Debug, Clone)]
    pub struct EitherSpec {
        pub group: Spanned<String>,
        pub share: Spanned<Share>,
        pub set: IndexMap<Spanned<String>, Spanned<String>>,
    }
}

/// The drawn quantities of each world, by the world's name.
pub(crate) type Worlds = IndexMap<String, IndexMap<String, String>>;

impl Document {
    /// Draws the worlds of the document's seed. The new worlds replace the worlds of another seed.
    pub(crate) fn draw_worlds(&mut self) -> Result<(), FileError> {
        let Some(spec) = self.draw.clone() else { return Ok(()) };
        let (place, spec) = (spec.span(), spec.into_inner());
        let axis = spec.axis.get_ref();
        if self.worlds.is_empty() && self.axes.contains_key(axis) {
            let message = format!("`{axis}` is an axis of `[axes]` too: rename one of them");
            return Err(self.source.error(spec.axis.span(), message));
        }
        self.axes.shift_remove(axis);
        self.worlds.clear();
        self.check_draw(&spec)?;
        for number in 1..=u64::from(*spec.count.get_ref()) {
            let (name, world) = spec
                .world(self.seed, number)
                .map_err(|(at, message)| self.source.error(at, message))?;
            self.worlds.insert(name, world);
        }
        let values = self.worlds.keys().map(|name| Spanned::new(place.clone(), name.clone()));
        self.axes.insert(axis.clone(), Spanned::new(place.clone(), values.collect()));
        Ok(())
    }

    fn check_draw(&self, spec: &DrawSpec) -> Result<(), FileError> {
        let wrong = |place, message: String| Err(self.source.error(place, message));
        if !(1..=MOST_WORLDS).contains(spec.count.get_ref()) {
            return wrong(spec.count.span(), format!("`count` is from 1 to {MOST_WORLDS}"));
        }
        for name in spec.each.keys() {
            if self.axes.contains_key(name.get_ref()) {
                let message = format!("`{}` is an axis, too: rename one of them", name.get_ref());
                return wrong(name.span(), message);
            }
        }
        let mut shares: IndexMap<&str, f64> = IndexMap::new();
        for either in &spec.either {
            if let Some(name) = either.set.keys().find(|name| !spec.each.contains_key(*name)) {
                let message = format!(
                    "`{}` has no value in the other worlds: give it one in `each`",
                    name.get_ref()
                );
                return wrong(name.span(), message);
            }
            let sum = shares.entry(either.group.get_ref()).or_default();
            *sum += either.share.get_ref().fraction();
            if *sum > 1.0 + 1e-9 {
                let message = format!(
                    "the shares of the group `{}` are more than 100 %",
                    either.group.get_ref()
                );
                return wrong(either.share.span(), message);
            }
        }
        Ok(())
    }

    /// Returns the quantity `name` of the world to which the cell at `axes` belongs.
    pub(crate) fn drawn_at(&self, axes: &results::Axes, name: &str) -> Option<&String> {
        let axis = self.draw.as_ref()?.get_ref().axis.get_ref();
        self.worlds.get(axes.get(axis)?)?.get(name)
    }

    /// Returns the names of the quantities that are drawn for every world.
    pub(crate) fn drawn_names(&self) -> impl Iterator<Item = &Spanned<String>> {
        self.draw.iter().flat_map(|spec| spec.get_ref().each.keys())
    }

    /// Returns the texts with ranges, from which quantities are drawn.
    pub(crate) fn drawn_texts(&self) -> impl Iterator<Item = &Spanned<String>> {
        self.draw.iter().flat_map(|spec| {
            let of_some = spec.get_ref().either.iter().flat_map(|either| either.set.values());
            spec.get_ref().each.values().chain(of_some)
        })
    }
}

type Wrong = (std::ops::Range<usize>, String);

impl DrawSpec {
    /// Draws a world: its name and its quantities, which do not depend on `count`.
    fn world(&self, seed: u64, number: u64) -> Result<(String, IndexMap<String, String>), Wrong> {
        let seed = seed ^ mix(number);
        let draw = |name: &str, text: &Spanned<String>| {
            let drawn = drawn(text.get_ref(), &mut Stream::new(seed, name));
            drawn.map_err(|message| (text.span(), message))
        };
        let (mut world, mut told) = (IndexMap::new(), vec![number.to_string()]);
        for (name, text) in &self.each {
            let value = draw(name.get_ref(), text)?;
            if text.get_ref().contains("..") {
                told.push(value.clone());
            }
            world.insert(name.get_ref().clone(), value);
        }
        let mut places: IndexMap<&str, f64> = IndexMap::new();
        for either in &self.either {
            let group = either.group.get_ref().as_str();
            let place = places.entry(group).or_insert_with(|| Stream::new(seed, group).unit());
            let share = either.share.get_ref().fraction();
            let is_chosen = (0.0..share).contains(&*place);
            *place -= share;
            if !is_chosen {
                continue;
            }
            for (name, text) in &either.set {
                let value = draw(name.get_ref(), text)?;
                told.push(format!("{}={value}", name.get_ref()));
                world.insert(name.get_ref().clone(), value);
            }
        }
        Ok((told.join(" "), world))
    }
}

/// Returns `text` with a value in place of each range. `2mbit..300mbit`: each order of magnitude is
/// equally likely. `1..4xcubic`: a whole number from 1 to 4.
fn drawn(text: &str, random: &mut Stream) -> Result<String, String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '%';
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("..") {
        let left = rest[..at].rfind(|c| !is_part(c)).map_or(0, |before| before + 1);
        let behind = &rest[at + 2..];
        let right = behind.find(|c| !is_part(c)).unwrap_or(behind.len());
        let wrong =
            || format!("`{text}` has no range: write `2ms..50ms`, or `1..4` for whole numbers");
        let (low, low_unit) = number(&rest[left..at]).ok_or_else(wrong)?;
        let (high, high_unit) = number(&behind[..right]).ok_or_else(wrong)?;
        let is_whole = low_unit.is_empty();
        if low > high || low <= 0.0 || !is_whole && low_unit != high_unit {
            return Err(format!(
                "`{}..{}`: a range rises, begins above 0, and has one unit",
                &rest[left..at],
                &behind[..right]
            ));
        }
        done.push_str(&rest[..left]);
        let value = match is_whole {
            true => (low + ((high - low + 1.0) * random.unit()).floor()).min(high),
            false => low * (high / low).powf(random.unit()),
        };
        done.push_str(&three_digits(value));
        done.push_str(high_unit);
        rest = &behind[right..];
    }
    done.push_str(rest);
    Ok(done)
}

fn number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    Some((text[..end].parse().ok().filter(|value: &f64| value.is_finite())?, &text[end..]))
}

fn three_digits(value: f64) -> String {
    let places = (2.0 - value.log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

const MOST_WORLDS: u32 = 2000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::LabFile;
    use crate::model::Plan;
    use results::Form;

    const LAB: &str = r#"
name = "x"
hosts = ["a", "b"]
seed = 5
[draw]
axis = "world"
count = 200
each = { rate = "2mbit..200mbit", rtt = "5ms..300ms", loss = "none", beside = "none" }
[[draw.either]]
group = "trouble"
share = "25%"
set = { loss = "0.1%..2%" }
[[draw.either]]
group = "trouble"
share = "25%"
set = { loss = "holes" }
[[draw.either]]
group = "company"
share = "50%"
set = { beside = "1..4xcubic" }
[words]
holes = "gilbert:p=0.1%,r=5%,every=1ms"
[[link]]
between = ["a", "b"]
rtt = "{rtt}"
forward = { rate = "{rate}", loss = "{loss}" }
[workload]
kind = "flows"
from = "a"
to = "b"
beside = "{beside}"
[[system]]
name = "cubic"
kind = "tcp"
congestion = "cubic"
[form.full]
repeats = 6
duration = "1s"
[form.quick]
draws = 10
duration = "1s"
"#;

    #[test]
    fn each_drawn_world_is_an_axis_value_with_its_quantities() {
        let mut lab = LabFile::parse("x.toml", LAB).unwrap();
        let worlds = lab.worlds.clone();
        assert_eq!(lab.axes["world"].get_ref().len(), 200);
        for (number, (name, world)) in worlds.iter().enumerate() {
            assert!(name.starts_with(&format!("{} {}", number + 1, world["rate"])), "{name}");
            let rate: units::Rate = world["rate"].parse().unwrap();
            assert!((2.0..=200.0).contains(&rate.mbit_per_second()), "{name}");
            assert!(
                ["none", "1xcubic", "2xcubic", "3xcubic", "4xcubic"]
                    .contains(&world["beside"].as_str())
            );
        }
        let share =
            |name: &str, value: &str| worlds.values().filter(|world| world[name] == value).count();
        assert!((70..=130).contains(&share("loss", "none")), "{}", share("loss", "none"));
        assert!((30..=75).contains(&share("loss", "holes")), "{}", share("loss", "holes"));
        assert!((10..=45).contains(&share("beside", "3xcubic")));
        lab.set_seed(6).unwrap();
        assert_ne!(lab.worlds, worlds);
        lab.set_seed(5).unwrap();
        assert_eq!(lab.worlds, worlds);
        assert!(lab.is_drawn());
    }

    #[test]
    fn a_short_form_measures_the_first_drawn_worlds() {
        let lab = LabFile::parse("x.toml", LAB).unwrap();
        let cells = |form| Plan::new(&lab, form, &["cubic".to_owned()], None).cells;
        assert_eq!((cells(Form::Full).len(), cells(Form::Quick).len()), (200, 10));
        let first: Vec<&String> = lab.worlds.keys().take(10).collect();
        assert!(cells(Form::Quick).iter().all(|cell| first.contains(&&cell.axes["world"])));
        let fewer = LabFile::parse("x.toml", &LAB.replace("count = 200", "count = 20")).unwrap();
        assert!(fewer.worlds.keys().eq(lab.worlds.keys().take(20)));
    }

    #[test]
    fn wrong_draws_are_refused() {
        let wrong = |from: &str, to: &str| {
            LabFile::parse("x.toml", &LAB.replacen(from, to, 1)).unwrap_err().to_string()
        };
        assert!(wrong("count = 200", "count = 0").contains("from 1 to 2000"));
        assert!(wrong("5ms..300ms", "300ms..5ms").contains("a range rises"));
        assert!(wrong("5ms..300ms", "5ms..300s").contains("has one unit"));
        assert!(wrong("5ms..300ms", "x..300ms").contains("has no range"));
        assert!(wrong("share = \"25%\"", "share = \"90%\"").contains("more than 100 %"));
        assert!(wrong("{ loss = \"0", "{ los = \"0").contains("give it one in `each`"));
        assert!(wrong("loss = \"{loss}\"", "loss = \"0%\"").contains("nothing depends on `loss`"));
        assert!(wrong("draws = 10", "draws = 0").contains("at least 1"));
    }

    #[test]
    fn a_drawn_text_without_a_range_is_unchanged() {
        let draw = |text: &str| drawn(text, &mut Stream::new(1, "x")).unwrap();
        assert_eq!(draw("1ms,uniform,reorder"), "1ms,uniform,reorder");
        assert_eq!(draw("3ms..3ms,uniform"), "3ms,uniform");
        assert_eq!(three_digits(0.012_345), "0.0123");
        assert_eq!(three_digits(12_345.0), "12345");
        assert_eq!(three_digits(100.0), "100");
    }
}
