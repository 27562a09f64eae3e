#include "cmd/sign_test.h"

#include <cmath>

namespace ridge {

double chance_of_heads(int n, int k) {
    double sum = 0, term = std::pow(0.5, n);  // of n heads
    for (int heads = n; heads >= k; heads--) {
        sum += term;
        term *= static_cast<double>(heads) / (n - heads + 1);
    }
    return sum;
}

}  // namespace ridge
