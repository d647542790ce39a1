//! What stands between the parentheses of `#[kernel(...)]`.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{AngleBracketedGenericArguments, Expr, ExprLit, Lit, LitStr, Token, bracketed, parenthesized};

/// The options, checked.
pub struct Options {
    /// `sm_80` or `sm_90a`.
    pub arch: String,
    /// `PerTile`, `OneTile` or `Persistent`.
    pub grid: Ident,
    /// Blocks that an SM must be able to hold.
    pub min_blocks: Expr,
    /// Name and message of each fault that the kernel can report.
    pub faults: Vec<(Ident, LitStr)>,
    /// Name and generic arguments of each instance.
    pub instances: Vec<Instance>,
}

/// One instance of a generic kernel.
pub struct Instance {
    /// Last part of the entry's name.
    pub name: Ident,
    /// What stands in `<f32, 256>`, one stream for each argument.
    pub arguments: Vec<TokenStream>,
}

/// `<f32, 256>`.
fn arguments(input: ParseStream) -> syn::Result<Vec<TokenStream>> {
    let list: AngleBracketedGenericArguments = input.parse()?;
    Ok(list.args.iter().map(|a| quote!(#a)).collect())
}

/// `[<f32>, <f16>] x [<1, 256>, <4, 64>]`: every choice of one from each list, named after its arguments.
fn product(input: ParseStream) -> syn::Result<Vec<Instance>> {
    let mut all: Vec<Vec<TokenStream>> = vec![Vec::new()];
    loop {
        let list;
        bracketed!(list in input);
        let mut choices = Vec::new();
        while !list.is_empty() {
            choices.push(arguments(&list)?);
            if !list.is_empty() {
                list.parse::<Token![,]>()?;
            }
        }
        all = all.iter().flat_map(|left| choices.iter().map(move |right| [&left[..], right].concat())).collect();
        if !input.peek(syn::Ident) {
            break;
        }
        let times: Ident = input.parse()?;
        if times != "x" {
            return Err(syn::Error::new(times.span(), "expected `x` between two lists of instances"));
        }
    }
    Ok(all.into_iter().map(|arguments| Instance { name: named_after(&arguments), arguments }).collect())
}

fn named_after(arguments: &[TokenStream]) -> Ident {
    let mut name = String::new();
    for argument in arguments {
        if !name.is_empty() {
            name.push('_');
        }
        name.extend(argument.to_string().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }));
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        name.insert(0, '_');
    }
    Ident::new(&name, Span::call_site())
}

impl Parse for Options {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let mut options = Options {
            arch: "sm_80".into(),
            grid: Ident::new("PerTile", Span::call_site()),
            min_blocks: syn::parse_quote!(1),
            faults: Vec::new(),
            instances: Vec::new(),
        };
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            match key.to_string().as_str() {
                "arch" => {
                    input.parse::<Token![=]>()?;
                    let value: LitStr = input.parse()?;
                    options.arch = value.value();
                    if !["sm_80", "sm_90a"].contains(&options.arch.as_str()) {
                        return Err(syn::Error::new(value.span(), "images are built for \"sm_80\" and \"sm_90a\""));
                    }
                }
                "grid" => {
                    input.parse::<Token![=]>()?;
                    let value: Ident = input.parse()?;
                    let grid = match value.to_string().as_str() {
                        "persistent" => "Persistent",
                        "one_tile" => "OneTile",
                        "per_tile" => "PerTile",
                        _ => {
                            let message = "expected `per_tile`, `one_tile` or `persistent`";
                            return Err(syn::Error::new(value.span(), message));
                        }
                    };
                    options.grid = Ident::new(grid, Span::call_site());
                }
                "min_blocks" => {
                    input.parse::<Token![=]>()?;
                    let value: Expr = input.parse()?;
                    // what an expression gives is checked where it is computed
                    if let Expr::Lit(ExprLit { lit: Lit::Int(n), .. }) = &value
                        && !(1..=32).contains(&n.base10_parse::<u64>()?)
                    {
                        return Err(syn::Error::new(n.span(), "an SM holds 1 to 32 blocks"));
                    }
                    options.min_blocks = value;
                }
                "faults" => {
                    let list;
                    parenthesized!(list in input);
                    while !list.is_empty() {
                        let name = list.parse()?;
                        list.parse::<Token![=]>()?;
                        options.faults.push((name, list.parse()?));
                        if !list.is_empty() {
                            list.parse::<Token![,]>()?;
                        }
                    }
                }
                "instances" => {
                    let list;
                    parenthesized!(list in input);
                    while !list.is_empty() {
                        if list.peek(syn::token::Bracket) {
                            options.instances.extend(product(&list)?);
                        } else {
                            let name = list.parse()?;
                            list.parse::<Token![=]>()?;
                            options.instances.push(Instance { name, arguments: arguments(&list)? });
                        }
                        if !list.is_empty() {
                            list.parse::<Token![,]>()?;
                        }
                    }
                }
                _ => {
                    let message = "expected `arch`, `grid`, `min_blocks`, `faults` or `instances`";
                    return Err(syn::Error::new(key.span(), message));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}
