#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/clock.h"
#include "text/jinja/runtime.h"

namespace ridge::jinja {

// Variables of one level: the template, a loop's turn, a macro's call. Reading goes outwards,
// setting stays.
struct Scope {
    Scope* parent = nullptr;
    bool captured = false;  // a macro made here may outlive the level: not to be used again
    std::vector<std::pair<NameId, Value>> variables;

    Value* find(NameId id);
};

struct Macro {
    const MacroDef* definition = nullptr;
    Scope* scope = nullptr;  // where it was made
};

class Interpreter;

// One run of a for statement; the template sees it as `loop`.
struct Loop {
    Interpreter* owner = nullptr;
    const Stmt* statement = nullptr;
    Scope* outer = nullptr;
    Scope* test_scope = nullptr;  // for the statement's `if`
    Iterator* source = nullptr;
    bool tested = false;    // what is left in the source has passed the test
    bool finished = false;  // the statement is over: `outer` may be in use for something else
    int64_t length = -1;    // once known
    int64_t index0 = -1;
    int64_t depth0 = 0;   // of a recursive loop
    bool peeked = false;  // `after` holds what comes next, kMissing at the end
    Value after = Value::missing(), current = Value::missing(), before = Value::missing();
    Value last_changed = Value::missing();
};

// Runs a parsed template.
class Interpreter {
  public:
    Interpreter(Runtime& rt, const Program& program, const CivilTime& now);

    // A variable of the run. One that the template does not name is dropped.
    void set_global(std::string_view name, const Value& value);
    void run(TextBuilder& out);

    // For the attributes of a loop, which read ahead.
    Value peek(Loop& loop);
    int64_t length_of(Loop& loop);

  private:
    enum class Flow { kNext, kBreak, kContinue };

    Flow run_block(const Block& block, Scope& scope, TextBuilder& out);
    Flow run_statement(const Stmt& stmt, Scope& scope, TextBuilder& out);
    Flow run_if(const Stmt& stmt, Scope& scope, TextBuilder& out);
    // The text of a block, through its filters where it has some.
    Flow capture(const Stmt& stmt, Scope& scope, Value& result);
    Flow run_set_block(const Stmt& stmt, Scope& scope);
    Flow run_with(const Stmt& stmt, Scope& scope, TextBuilder& out);
    Flow run_filter_block(const Stmt& stmt, Scope& scope, TextBuilder& out);
    Flow run_in_new_scope(const Block& block, const std::vector<NameId>& unset, Scope& scope,
                          TextBuilder& out);
    Flow run_loop(Loop& loop, TextBuilder& out);
    void run_call_block(const Stmt& stmt, Scope& scope, TextBuilder& out);
    Loop* make_loop(const Stmt& stmt, Scope& outer, const Value& iterable, int64_t depth0);
    Value fetch(Loop& loop);
    Value advance(Loop& loop);
    void assign(const Expr& target, const Value& value, Scope& scope);
    void assign_namespace(const Expr& target, const Value& value, Scope& scope);
    void set(Scope& scope, NameId id, const Value& value);
    Value make_macro(const MacroDef& definition, Scope& scope);

    Value evaluate(const Expr& e, Scope& scope);
    Value evaluate_binary(const Expr& e, Scope& scope);
    Value evaluate_compare(const Expr& e, Scope& scope);
    Value evaluate_concat(const Expr& e, Scope& scope);
    Value evaluate_items(const Expr& e, Scope& scope);
    Value evaluate_dict(const Expr& e, Scope& scope);
    Value evaluate_slice(const Expr& e, Scope& scope);
    Value evaluate_call(const Expr& e, Scope& scope, const Value* caller);
    Value evaluate_filter(const Expr& e, Scope& scope);
    Value evaluate_test(const Expr& e, Scope& scope);
    Value evaluate_conditional(const Expr& e, Scope& scope);
    Value look_up(NameId id, const Str& name, Scope& scope);
    void evaluate_args(const CallArgs& call, Scope& scope, Args& args);

    Value call(const Value& callee, const Args& args);
    Value call_macro(const Macro& macro, const Args& args);
    void bind_macro(const MacroDef& definition, const Args& args, Scope& scope);
    Value call_loop(const Loop& loop, const Args& args);
    Value call_function(FunctionId id, const Args& args);
    Value call_range(const Args& args);
    Value call_dict(std::string_view name, const Args& args);
    Value call_namespace(const Args& args);
    Value call_cycler(const Args& args);
    Value call_strftime(const Args& args);

    Scope* new_scope(Scope* parent, const std::vector<NameId>& unset);
    void leave_unset(Scope& scope, const std::vector<NameId>& unset);
    void release(Scope* scope);

    Runtime& rt_;
    const Program& program_;
    CivilTime now_;
    Scope globals_, root_;
    std::deque<Scope> scopes_;
    std::vector<Scope*> free_scopes_;
    const Value* captured_ = nullptr;  // the text that a block's filters work on
    NameId loop_id_, caller_id_, kwargs_id_, varargs_id_;
    bool reads_loop_ = false;
};

}  // namespace ridge::jinja
