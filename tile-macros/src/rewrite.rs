//! Rewriting of signatures and bodies.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::quote;
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, GenericArgument, Lifetime, PathArguments, Type};

/// The views: types whose first parameter is a lifetime that signatures usually leave out.
const VIEWS: [&str; 6] = ["Tiles", "TilesMut", "TmaTiles", "TmaTilesMut", "TmaPages", "OwnedTiles"];

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

struct InlineRoles;

impl VisitMut for InlineRoles {
    fn visit_expr_method_call_mut(&mut self, call: &mut syn::ExprMethodCall) {
        visit_mut::visit_expr_method_call_mut(self, call);
        if ["roles", "ping_pong", "pair", "pair_supplied"].iter().any(|m| call.method == m) {
            for argument in &mut call.args {
                if let Expr::Closure(closure) = argument {
                    closure.attrs.push(syn::parse_quote!(#[inline(always)]));
                }
            }
        }
    }
}

/// Adds `#[inline(always)]` to role closures: a call would serialise the products in them.
pub fn inline_roles(body: &mut syn::Block) {
    InlineRoles.visit_block_mut(body);
}

/// `::<A, B>`, or nothing.
pub fn turbofish(arguments: &[TokenStream]) -> TokenStream {
    if arguments.is_empty() { TokenStream::new() } else { quote!(::<#(#arguments),*>) }
}
