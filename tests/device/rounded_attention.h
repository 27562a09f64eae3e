#pragma once

#include "model/tables.h"

namespace ridge {

// ref/ with what attention of `tables` rounds rounded before: of prompt rows at prefill_attention
// queries, and the products of q8_0's codes and scales. An error of a score is one of the
// exponent, so that large scores would tell the two apart; what else is rounded stays in
// proportion.
Tables attention_reference(const Tables& tables);

}  // namespace ridge
