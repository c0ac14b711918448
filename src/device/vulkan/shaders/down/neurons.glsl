/* The neurons of a workgroup of the transposed down, at most `span` of them: rows [first_row, end_row) of the weights.
 * SLICED, the binding of pairs: the weights are slices of n_neuron rows each, of which n_used were chosen for each token,
 * with a weight for its hidden values. Clusters and splits are those of the rows of all slices, so that a slice may begin
 * within one. Expects n_neuron, stride, first (SLICED: 0), n_used and hidden. */
uint first_row, end_row;

#ifdef SLICED
layout(binding = SLICED) readonly buffer Pairs { uint pairs[]; };

uint hidden_at; /* of row 0, modulo 2^32 */
float weight;

/* Number i of the clusters (or splits) of all pairs of token t. */
void choose(uint t, uint i, uint span)
{
    const uint n_cluster = n_neuron / CLUSTER + (n_neuron % CLUSTER > 0 ? 2 : 0), n_of_pair = n_cluster * (CLUSTER / span);
    const uint pair = i / n_of_pair, at = 2 * n_used * t + pair, slice = pairs[at] * n_neuron;
    const uint begin = slice / CLUSTER * CLUSTER + i % n_of_pair * span;
    first_row = max(begin, slice);
    end_row = max(first_row, min(begin + span, slice + n_neuron));
    hidden_at = t * stride + pair * n_neuron - slice;
    weight = uintBitsToFloat(pairs[at + n_used]);
}

float hidden_of(uint t, uint row)
{
    precise float h = hidden[hidden_at + row] * weight;
    return h;
}
#else
void choose(uint t, uint i, uint span)
{
    first_row = i * span;
    end_row = min(n_neuron, first_row + span);
}

float hidden_of(uint t, uint row) { return hidden[t * stride + first + row]; }
#endif
