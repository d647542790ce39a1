//! Reading PTX as far as the passes need it: the module's items, an entry's statements.

mod lint;
mod pass;
mod shared_matrix;

pub use lint::{INLINE_ALLOWED, convergent_counts, is_convergent, lint};
pub use pass::{EntryMeta, Finished, finish};

/// Changes with what the pass emits.
pub(crate) fn pass_version() -> u32 {
    pass::PASS_VERSION
}

/// One thing at module scope.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// `.version`, `.target`, `.address_size`: a line.
    Directive(String),
    /// A variable, with its initialiser.
    Var {
        /// Its name.
        name: String,
        /// All of it, semicolon included.
        text: String,
    },
    /// A function or entry with a body.
    Function {
        /// Its name.
        name: String,
        /// `.entry` rather than `.func`.
        entry: bool,
        /// All before the body.
        head: String,
        /// The body, braces included.
        body: String,
    },
    /// Anything else that ends in a semicolon, such as a function's declaration.
    Other(String),
}

/// Characters that PTX names are made of.
pub(crate) fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%')
}

/// Removes comments, line information, debug sections and blank lines, which are of no use to a driver and differ
/// from one folder to the next.
pub fn strip(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('/') {
        text.push_str(&rest[..at]);
        let tail = &rest[at..];
        if tail.starts_with("//") {
            rest = tail.find('\n').map_or("", |n| &tail[n..]);
        } else if tail.starts_with("/*") {
            rest = tail.find("*/").map_or("", |n| &tail[n + 2..]);
        } else {
            text.push('/');
            rest = &tail[1..];
        }
    }
    text.push_str(rest);
    let mut out = String::with_capacity(text.len());
    let mut section = false;
    for line in text.lines().map(str::trim_end) {
        let bare = line.trim_start();
        if bare.starts_with(".section") {
            section = true;
        }
        // a word, not a beginning: `.local` must stay to be found by the lint
        let word = bare.split_whitespace().next();
        let skip = section || matches!(word, None | Some(".file" | ".loc"));
        if section && bare.ends_with('}') {
            section = false;
        }
        if !skip {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// Splits stripped PTX into items. The error says what is not understood.
pub(crate) fn items(text: &str) -> Result<Vec<Item>, String> {
    let mut items = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let word = rest.split_whitespace().next().unwrap_or("");
        if matches!(word, ".version" | ".target" | ".address_size") {
            let end = rest.find('\n').unwrap_or(rest.len());
            items.push(Item::Directive(rest[..end].trim_end().to_string()));
            rest = rest[end..].trim_start();
            continue;
        }
        let (length, brace) =
            item_length(rest).ok_or_else(|| format!("no end of `{}`", rest.lines().next().unwrap_or("")))?;
        let (item, tail) = rest.split_at(length);
        rest = tail.trim_start();
        items.push(classify(item, brace));
    }
    Ok(items)
}

/// Length of the first item, and where its body starts if it has one.
fn item_length(text: &str) -> Option<(usize, Option<usize>)> {
    // an initialiser's braces follow `=`, a body's do not
    let (mut depth, mut open, mut assigned) = (0usize, None, false);
    for (i, c) in text.char_indices() {
        match c {
            '=' if depth == 0 => assigned = true,
            '{' => {
                if depth == 0 && !assigned {
                    open = Some(i);
                }
                depth += 1;
            }
            '}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 && !assigned {
                    return Some((i + 1, open));
                }
            }
            ';' if depth == 0 => return Some((i + 1, None)),
            _ => {}
        }
    }
    None
}

fn classify(item: &str, brace: Option<usize>) -> Item {
    match brace {
        Some(at) => {
            let (head, body) = item.split_at(at);
            let entry = has_word(head, ".entry");
            let name = function_name(head, entry).unwrap_or_default();
            Item::Function { name, entry, head: head.trim_end().to_string(), body: body.to_string() }
        }
        None if has_word(item, ".func") || has_word(item, ".entry") || item.starts_with(".alias") => {
            Item::Other(item.to_string())
        }
        None => match var_name(item) {
            Some(name) => Item::Var { name, text: item.to_string() },
            None => Item::Other(item.to_string()),
        },
    }
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| c.is_whitespace() || c == '(').any(|w| w == word)
}

fn function_name(head: &str, entry: bool) -> Option<String> {
    let at = head.find(if entry { ".entry" } else { ".func" })?;
    let mut tail = head[at..].trim_start_matches(|c: char| !c.is_whitespace() && c != '(');
    tail = tail.trim_start();
    if tail.starts_with('(') {
        // the return value
        tail = tail[tail.find(')')? + 1..].trim_start();
    }
    let name: String = tail.chars().take_while(|c| is_name_char(*c)).collect();
    (!name.is_empty()).then_some(name)
}

/// The name is the last word before `[`, `=` or the end.
fn var_name(item: &str) -> Option<String> {
    let end = item.find(['[', '=', ';'])?;
    let name = item[..end].split_whitespace().last()?;
    (!name.starts_with('.') && name.chars().all(is_name_char)).then(|| name.to_string())
}

/// One instruction, label or declaration of a body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Statement<'a> {
    /// Its first word without guard: `bar.sync`, `.reg`, or a label with its colon.
    pub op: &'a str,
    /// Everything after it.
    pub operands: &'a str,
    /// It has a guard such as `@%p1`.
    pub guarded: bool,
}

/// The statements of a body in order. Scopes are flattened, vector operands (`{%r1, %r2}`) kept together.
pub(crate) fn statements(body: &str) -> Vec<Statement<'_>> {
    let mut all = Vec::new();
    let mut start = 0;
    let bytes = body.as_bytes();
    let mut vector = false;
    for i in 0..bytes.len() {
        let piece = &body[start..i];
        match bytes[i] {
            // a brace within a statement opens a vector; at its start, a scope
            b'{' if !piece.trim().is_empty() => vector = true,
            b'}' if vector => vector = false,
            b'{' | b'}' | b';' => {
                push(&mut all, piece);
                start = i + 1;
                vector = false;
            }
            b':' if is_label(piece) => {
                push(&mut all, &body[start..=i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    push(&mut all, &body[start..]);
    all
}

fn is_label(piece: &str) -> bool {
    let p = piece.trim();
    !p.is_empty() && p.chars().all(is_name_char)
}

fn push<'a>(all: &mut Vec<Statement<'a>>, piece: &'a str) {
    let mut text = piece.trim();
    let mut guarded = false;
    if text.starts_with('@') {
        guarded = true;
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        text = text[end..].trim_start();
    }
    if text.is_empty() {
        return;
    }
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    all.push(Statement { op: &text[..end], operands: text[end..].trim(), guarded });
}

/// The names in a piece of text.
pub(crate) fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_name_char(c)).filter(|w| !w.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"
//
// Generated
//
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 dyn_smem[];
	// .globl	k
.func  (.param .b32 r) f
(
	.param .b64 f_param_0
)
;
.visible .global .align 8 .b8 k__meta[4] = {1, 2, 3};
.visible .entry k(
	.param .u64 .ptr .align 1 k_param_0, // x
	.param .align 8 .b8 k_param_1[136]
)
{
	.reg .pred 	%p<2>;
	.loc 1 2 3
	/* block
	 comment */
	@%p1 bra 	$L__BB0_2;
	// begin inline asm
	{ .reg .b64 t; mov.b64 t, k_param_1; mov.b32 {%r1, %r2}, t; }
	// end inline asm
$L__BB0_2:
	ret;

}
	.section	.debug_str
	{
	.b8 1
	}
"#;

    #[test]
    fn reads_items() {
        let stripped = strip(SAMPLE);
        assert!(!stripped.contains("//") && !stripped.contains("comment") && !stripped.contains(".loc"));
        let items = items(&stripped).unwrap();
        let kinds: Vec<String> = items
            .iter()
            .map(|i| match i {
                Item::Directive(d) => d.clone(),
                Item::Var { name, .. } => format!("var {name}"),
                Item::Function { name, entry, .. } => format!("function {name} {entry}"),
                Item::Other(o) => format!("other {}", o.split_whitespace().next().unwrap()),
            })
            .collect();
        assert_eq!(
            kinds,
            [
                ".version 8.0",
                ".target sm_90a",
                ".address_size 64",
                "var dyn_smem",
                "other .func",
                "var k__meta",
                "function k true"
            ]
        );
    }

    #[test]
    fn reads_statements() {
        let stripped = strip(SAMPLE);
        let all = items(&stripped).unwrap();
        let Some(Item::Function { body, .. }) = all.last() else { panic!() };
        let ops: Vec<_> = statements(body).iter().map(|s| (s.op, s.guarded)).collect();
        assert_eq!(
            ops,
            [
                (".reg", false),
                ("bra", true),
                (".reg", false),
                ("mov.b64", false),
                ("mov.b32", false),
                ("$L__BB0_2:", false),
                ("ret", false)
            ]
        );
        let vector = statements(body)[4];
        assert_eq!(vector.operands, "{%r1, %r2}, t");
    }
}
