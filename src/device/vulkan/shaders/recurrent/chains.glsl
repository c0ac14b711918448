/* Sums of recurrent mixers: chains whose products and sums are rounded apart (docs/arithmetic.md 5, 12). Vectors are of
 * neighbouring columns, each with a chain of its own. */

float plus(float sum, float a, float b)
{
    precise float product = a * b;
    precise float next = sum + product;
    return next;
}

vec4 plus(vec4 sum, vec4 a, vec4 b)
{
    precise vec4 product = a * b;
    precise vec4 next = sum + product;
    return next;
}
