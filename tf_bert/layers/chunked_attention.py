"""Attention over long sequences in the memory of a short one: keys in chunks, scores never all at once."""

from keras import ops

from tf_bert.backend import at_least_float32, scan, uniform

CHUNK = 64
NEVER = -1e30


def chunked_attention(query, key, value, allowed=None, additive=True, dropout=0.0, seed=None, chunk=CHUNK):
    """``softmax(query key^T) value`` without the matrix of all scores, forward and backward.

    The forward pass goes over the keys once and corrects what it has whenever a greater score appears. It keeps each
    query's greatest score and denominator, by which the backward pass computes the probabilities again, chunk by chunk.
    So memory grows with F + T and not with F * T; the work is a third more than that of the plain computation.

    Args:
        query: [B, N, F, D], scaled.
        key: [B, N, T, D].
        value: [B, N, T, D].
        allowed: boolean, broadcasts to [B, N, F, T] and ends in T: where a query may attend; None for everywhere.
        additive: whether 10000 is taken off the other scores, or they are excluded (see `MultiHeadAttention`).
        dropout: of the probabilities.
        seed: [2], where the dropout masks come from; both passes draw the same ones.
        chunk: how many keys are looked at together.

    Returns:
        [B, N, F, D]. Gradients flow to query, key and value.

    Source: Rabe and Staats 2021, "Self-attention Does Not Need O(n^2) Memory"; the backward pass is that of Dao et al.
    2022 (FlashAttention), section 3.1 and appendix B.2.

    Example:
        >>> query, key, value = ops.ones([1, 1, 2, 4]), ops.ones([1, 1, 3, 4]), ops.ones([1, 1, 3, 4])
        >>> chunked_attention(query, key, value, chunk=2)[0, 0, 0, 0].numpy().item()
        1.0
    """
    # B batch, N heads, F query positions, T key positions, C keys of a chunk, J chunks, D width of a head
    length = ops.shape(key)[2]
    n_chunks = (length + chunk - 1) // chunk
    numbers = ops.arange(n_chunks)
    real = ops.reshape(ops.arange(n_chunks * chunk) < length, (n_chunks, chunk))  # [J, C]
    masks = (
        () if allowed is None else (_in_chunks(allowed, len(allowed.shape) - 1, n_chunks, chunk),)
    )  # [J, ..., F or 1, C]
    rate = dropout if seed is not None else 0.0

    def scores_of(query, key, real, masks):
        """The scores of a chunk, masked, [B, N, F, C]."""
        scores = at_least_float32(ops.einsum("bnfd,bncd->bnfc", query, key))
        for mask in masks:
            scores = ops.where(mask, scores, scores - 10000.0 if additive else NEVER)
        return ops.where(real, scores, NEVER)

    def without_excluded(weights, masks):
        for mask in () if additive else masks:
            weights = ops.where(mask, weights, 0.0)
        return weights

    def kept(weights, number):
        """``weights``, of which the dropout mask of this chunk keeps some."""
        if not rate:
            return weights
        draws = uniform(ops.shape(weights), seed + ops.stack([ops.cast(number, seed.dtype), ops.zeros((), seed.dtype)]))
        return ops.where(draws >= rate, weights / (1.0 - rate), 0.0)

    @ops.custom_gradient
    def attend(query, key, value):
        chunks = (*(_in_chunks(x, 2, n_chunks, chunk) for x in (key, value)), numbers, real, *masks)

        def forward(state, chunk_of):
            greatest, total, context = state  # [B, N, F, 1], [B, N, F, 1], [B, N, F, D]
            key, value, number, real, *masks = chunk_of
            scores = scores_of(query, key, real, masks)
            top = ops.maximum(greatest, ops.max(scores, axis=-1, keepdims=True))
            correction = ops.exp(greatest - top)
            weights = ops.exp(scores - top)  # [B, N, F, C]
            total = total * correction + ops.sum(weights, axis=-1, keepdims=True)
            weights = ops.cast(kept(without_excluded(weights, masks), number), value.dtype)
            product = ops.einsum("bnfc,bncd->bnfd", weights, value)
            return (top, total, context * correction + ops.cast(product, context.dtype)), ()

        nothing = ops.zeros_like(at_least_float32(query))
        start = (ops.full_like(nothing[..., :1], 2 * NEVER), nothing[..., :1], nothing)
        (greatest, total, context), _ = scan(forward, start, chunks, one_by_one=True)
        context = context / total

        def backward(upstream):
            upstream = ops.cast(upstream, context.dtype)
            mean = ops.sum(upstream * context, axis=-1, keepdims=True)  # [B, N, F, 1], of the probabilities' gradients

            def step(d_query, chunk_of):
                key, value, number, real, *masks = chunk_of
                scores = scores_of(query, key, real, masks)
                probs = without_excluded(ops.exp(scores - greatest) / total, masks)  # [B, N, F, C]
                wide_value, wide_key = ops.cast(value, upstream.dtype), ops.cast(key, upstream.dtype)
                d_value = ops.einsum("bnfc,bnfd->bncd", kept(probs, number), upstream)
                d_probs = kept(ops.einsum("bnfd,bncd->bnfc", upstream, wide_value), number)
                d_scores = probs * (d_probs - mean)
                d_key = ops.einsum("bnfc,bnfd->bncd", d_scores, ops.cast(query, upstream.dtype))
                return d_query + ops.einsum("bnfc,bncd->bnfd", d_scores, wide_key), (d_key, d_value)

            d_query, (d_keys, d_values) = scan(step, ops.zeros_like(context), chunks, one_by_one=True)
            gradients = (d_query, _joined(d_keys, length), _joined(d_values, length))
            return tuple(ops.cast(d, x.dtype) for d, x in zip(gradients, (query, key, value), strict=True))

        return ops.cast(context, value.dtype), backward

    return attend(query, key, value)


def _in_chunks(x, axis, n_chunks, chunk):
    """Cuts an axis of length T: [..., T, ...] -> [J, ..., C, ...], filled up with zeros."""
    shape = ops.shape(x)
    missing = n_chunks * chunk - shape[axis]
    if not isinstance(missing, int) or missing:
        x = ops.concatenate([x, ops.zeros((*shape[:axis], missing, *shape[axis + 1 :]), x.dtype)], axis=axis)
    return ops.moveaxis(ops.reshape(x, (*shape[:axis], n_chunks, chunk, *shape[axis + 1 :])), axis, 0)


def _joined(x, length):
    """[J, B, N, C, D] -> [B, N, T, D]."""
    n_chunks, batch, heads, chunk, width = ops.shape(x)
    return ops.reshape(ops.moveaxis(x, 0, 2), (batch, heads, n_chunks * chunk, width))[:, :, :length]
