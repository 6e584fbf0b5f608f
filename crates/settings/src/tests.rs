use super::*;
use indexmap::IndexMap;
use serde::Deserialize;
use toml::Spanned;

table! {
    #[derive(Debug)]
    struct Lab in kebab {
        name: Spanned<String>,
        first_hosts: Vec<Spanned<String>>,
        axes: IndexMap<String, Vec<String>> = IndexMap::new(),
        undo: Option<String> as "un-do",
        path: Vec<Path> = vec![],
        seed: u64 = 7,
    }
    beside {
        is_checked: bool,
    }
}

table! {
    #[derive(Debug)]
    struct Path {
        kind: Kind,
        rate: Option<Spanned<u32>>,
        pin: Option<OneOrMore<String>>,
    }
}

table! {
    #[derive(Debug)]
    struct Numbers {
        share: f64 = 0.0,
        sizes: Option<[u64; 3]>,
    }
}

leaves!(Kind);

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Tcp,
    Udp,
}

fn mistakes(text: &str) -> Vec<(usize, What)> {
    read::<Lab>(text).1.into_found().into_iter().map(|one| (one.line, one.what)).collect()
}

#[test]
fn a_sound_file_is_read_with_the_places_of_its_values() {
    let text = "name = \"x\"\nfirst-hosts = [\"a\", \"b\"]\nun-do = \"z\"\n\
                [axes]\nloss = [\"0%\"]\n[[path]]\nkind = \"udp\"\nrate = 0x1F\npin = \"p\"\n";
    let lab: Lab = parse(text).unwrap();
    assert_eq!(&text[lab.first_hosts[1].span()], "\"b\"");
    assert_eq!((lab.name.get_ref().as_str(), lab.name.span()), ("x", 7..10));
    assert_eq!((lab.axes["loss"].as_slice(), lab.seed), (["0%".to_owned()].as_slice(), 7));
    assert_eq!((lab.undo.as_deref(), lab.is_checked), (Some("z"), false));
    let [path] = <[Path; 1]>::try_from(lab.path).unwrap();
    assert_eq!((path.kind, path.rate.map(Spanned::into_inner)), (Kind::Udp, Some(31)));
    assert_eq!(path.pin, Some(OneOrMore(vec!["p".to_owned()])));
}

#[test]
fn each_mistake_is_found_at_its_line_and_has_its_type() {
    let text = "nam = \"x\"\ntitle 5\nfirst-hosts = \"a\"\n[axes]\nloss = [5, \"1%\"]\n\
                [[path]]\nkind = \"tpc\"\nrate = -1\n[[path]]\npin = [true]\nzzz = 1\n";
    let unfit = |found: &str, expected: &str| What::Unfit {
        found: found.to_owned(),
        expected: expected.to_owned(),
    };
    let known = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let root = known(&["name", "first-hosts", "axes", "un-do", "path", "seed"]);
    let of_path = known(&["kind", "rate", "pin"]);
    let expected = [
        (1, What::UnknownKey { word: "nam".to_owned(), known: root }),
        (2, What::Syntax("key with no value, expected `=`".to_owned())),
        (3, unfit("string \"a\"", "a list in brackets")),
        (5, unfit("integer `5`", "a text in quotes")),
        (7, What::UnknownWord { word: "tpc".to_owned(), known: &["tcp", "udp"] }),
        (8, unfit("integer `-1`", "a whole number, 0 or above")),
        (9, What::MissingKey("kind".to_owned())),
        (10, unfit("boolean `true`", "a text in quotes")),
        (11, What::UnknownKey { word: "zzz".to_owned(), known: of_path }),
    ];
    assert_eq!(mistakes(text), expected);
}

#[test]
fn a_stand_in_replaces_a_value_with_a_mistake_and_its_line_is_doubtful() {
    let text = "name = 5\nfirst-hosts = [\"a\"]\n[[path]]\nkind = \"quic\"\nrate = 1\n\
                [[path]]\nkind = \"upd\"\n";
    let (lab, mistakes) = read::<Lab>(text);
    let lab = lab.unwrap();
    assert_eq!(lab.name.get_ref(), LOST);
    // The nearest word is meant. Without a near word, the first word is a guess about its table.
    assert_eq!((&lab.path[0].kind, &lab.path[1].kind), (&Kind::Tcp, &Kind::Udp));
    let doubtful: Vec<usize> = (1..=7).filter(|line| mistakes.is_doubtful(*line)).collect();
    assert_eq!(doubtful, [1, 3, 4, 5]);
    let (lab, mistakes) = read::<Lab>("name = \"x\"\nfirst-hosts = []\n");
    assert!(lab.is_some() && !mistakes.has_losses() && mistakes.found().is_empty());
}

#[test]
fn a_key_whose_line_is_lost_does_not_count_as_missing() {
    let found = mistakes("name \"x\"\nfirst-hosts = [\n  \"a\",\n  \"b\" \"c\",\n]\n");
    let lines: Vec<usize> = found.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [1, 4], "{found:?}");
    assert!(found.iter().all(|(_, what)| matches!(what, What::Syntax(_))), "{found:?}");
}

#[test]
fn the_search_for_mistakes_ends_for_any_text() {
    for text in [
        "[",
        "[[",
        "a",
        "\"\"\"",
        "name = \"\"\"\n[x]",
        "[a]\n[a]\n[a]\n",
        "é = é",
        "x = {a = 1, é",
        "x = 1\nx = 2\nx = 3\n",
        "a\r\nb\r\n",
    ] {
        assert!(!mistakes(text).is_empty(), "{text}");
    }
}

#[test]
fn a_text_with_a_nul_character_is_a_mistake() {
    for text in [
        "name = \"\\u0000\"\nfirst-hosts = []\n",
        "name = \"x\"\nfirst-hosts = [\"\\u0000\"]\n",
        "name = \"x\"\nfirst-hosts = []\n[axes]\n\"\\u0000\" = []\n",
    ] {
        let found = mistakes(text);
        assert!(matches!(&found[..], [(_, What::Refused(_))]), "{text}: {found:?}");
    }
}

#[test]
fn a_number_out_of_range_and_a_list_of_another_length_are_refused() {
    for text in ["share = 1e999", "sizes = [1, 2]", "sizes = [1, 2, 3, 4]"] {
        assert!(parse::<Numbers>(text).is_err(), "{text}");
    }
    let numbers: Numbers = parse("share = inf\nsizes = [1, 2, 3]").unwrap();
    assert_eq!((numbers.share, numbers.sizes), (f64::INFINITY, Some([1, 2, 3])));
}

#[test]
fn a_file_with_a_mistake_on_each_line_gives_errors_about_the_first_mistakes() {
    let text: String = (0..5000).map(|number| format!("zzz{number} = 1\n")).collect();
    let found = mistakes(&text);
    assert!((1..1000).contains(&found.len()), "{}", found.len());
    assert_eq!(found[0].0, 1);
}
