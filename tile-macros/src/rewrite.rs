//! Rewriting of signatures and bodies.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::quote;
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, GenericArgument, Lifetime, PathArguments, Type};

/// The views: types whose first parameter is a lifetime that signatures usually leave out.
const VIEWS: [&str; 9] = [
    "Tiles",
    "TilesMut",
    "RowTiles",
    "RowTilesMut",
    "TmaTiles",
    "TmaTilesMut",
    "TmaPages",
    "OwnedTiles",
    "ScatterRows",
];

struct Lifetimes<'a>(&'a Lifetime);

impl VisitMut for Lifetimes<'_> {
    fn visit_lifetime_mut(&mut self, l: &mut Lifetime) {
        if l.ident == "_" {
            *l = self.0.clone();
        }
    }
    fn visit_path_segment_mut(&mut self, segment: &mut syn::PathSegment) {
        visit_mut::visit_path_segment_mut(self, segment);
        if !VIEWS.iter().any(|v| segment.ident == v) {
            return;
        }
        if let PathArguments::AngleBracketed(list) = &mut segment.arguments
            && !list.args.iter().any(|a| matches!(a, GenericArgument::Lifetime(_)))
        {
            list.args.insert(0, GenericArgument::Lifetime(self.0.clone()));
        }
    }
}

/// `ty` with every lifetime that was left out (or written `'_`) spelled `lifetime`.
pub fn with_lifetime(ty: &Type, lifetime: &str) -> Type {
    let mut ty = ty.clone();
    Lifetimes(&Lifetime::new(lifetime, proc_macro2::Span::call_site())).visit_type_mut(&mut ty);
    ty
}

/// `tokens` with generic parameters replaced by an instance's arguments.
pub fn substitute(tokens: TokenStream, map: &[(Ident, TokenStream)]) -> TokenStream {
    tokens
        .into_iter()
        .flat_map(|t| match t {
            TokenTree::Ident(i) => match map.iter().find(|(name, _)| *name == i) {
                Some((_, with)) => with.clone(),
                None => TokenStream::from(TokenTree::Ident(i)),
            },
            TokenTree::Group(g) => {
                let mut inner = Group::new(g.delimiter(), substitute(g.stream(), map));
                inner.set_span(g.span());
                TokenStream::from(TokenTree::Group(inner))
            }
            other => TokenStream::from(other),
        })
        .collect()
}

struct InlineClosures;

fn inline_arguments<'a>(arguments: impl Iterator<Item = &'a mut Expr>) {
    for argument in arguments {
        if let Expr::Closure(closure) = argument {
            closure.attrs.push(syn::parse_quote!(#[inline(always)]));
        }
    }
}

impl VisitMut for InlineClosures {
    fn visit_expr_method_call_mut(&mut self, call: &mut syn::ExprMethodCall) {
        visit_mut::visit_expr_method_call_mut(self, call);
        inline_arguments(call.args.iter_mut());
    }
    fn visit_expr_call_mut(&mut self, call: &mut syn::ExprCall) {
        visit_mut::visit_expr_call_mut(self, call);
        inline_arguments(call.args.iter_mut());
    }
}

/// Adds `#[inline(always)]` to closures that are arguments: a call of a role would serialise the products in it, and one
/// of an epilogue would pass its accumulator through memory.
pub fn inline_closures(body: &mut syn::Block) {
    InlineClosures.visit_block_mut(body);
}

/// `::<A, B>`, or nothing.
pub fn turbofish(arguments: &[TokenStream]) -> TokenStream {
    if arguments.is_empty() { TokenStream::new() } else { quote!(::<#(#arguments),*>) }
}
