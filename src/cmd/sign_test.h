#pragma once

namespace ridge {

// How probable k or more heads are in n throws of a coin: what chance alone would give where one of
// two was faster in k of n rounds.
double chance_of_heads(int n, int k);

}  // namespace ridge
