#pragma once

#include "text/jinja/ast.h"

namespace ridge::jinja {

// Jinja decides when it compiles a template where each name is looked up. A name that a level (the
// template, a loop's body, a macro, ...) sets before it reads it, unconditionally, is the level's
// own from its start: even what stands before the assignment, in a level further in, does not see a
// variable of the same name from outside. Fills the lists of such names.
void find_unset_names(Program& program);

}  // namespace ridge::jinja
