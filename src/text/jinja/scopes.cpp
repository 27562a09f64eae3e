#include "text/jinja/scopes.h"

#include <unordered_set>

namespace ridge::jinja {
namespace {

struct Level {
    const Level* outer;
    std::unordered_set<NameId> names;  // that this level looks up or sets
    std::vector<NameId> unset;

    bool knows(NameId name) const { return names.count(name) > 0; }
    bool known_outside(NameId name) const {
        for (const Level* level = outer; level != nullptr; level = level->outer) {
            if (level->knows(name)) return true;
        }
        return false;
    }
    void load(NameId name) {
        if (!knows(name) && !known_outside(name)) names.insert(name);
    }
    void store(NameId name, bool conditional) {
        if (knows(name)) return;
        if (!conditional && !known_outside(name)) unset.push_back(name);
        names.insert(name);
    }
};

// Levels nest no deeper than the parser allows, and so do expressions.
class ScopeFinder {
  public:
    void analyse(Program& program) {
        Level level{nullptr, {}, {}};
        visit_block(program.body, level, false);
        program.unset = level.unset;
        analyse_inside(program.body, level);
    }

  private:
    // The names of a level's own statements, without the levels inside.
    void visit_block(const Block& block, Level& level, bool conditional) {
        for (const Stmt* stmt : block) visit(*stmt, level, conditional);
    }

    void visit(const Stmt& stmt, Level& level, bool conditional) {
        if (stmt.kind == StmtKind::kWith) {
            for (const auto& [target, value] : stmt.withs) load(value, level);
        } else if (stmt.kind == StmtKind::kMacro) {
            level.store(stmt.macro->id, conditional);
        } else if (stmt.kind == StmtKind::kSetBlock) {
            store(*stmt.target, level, conditional);  // the filters belong to the block's level
        } else if (stmt.kind == StmtKind::kIf) {
            for (const Branch& branch : stmt.branches) {
                load(branch.test, level);
                visit_block(branch.body, level, true);
            }
        } else {
            load(stmt.value, level);
            if (stmt.kind == StmtKind::kSet) store(*stmt.target, level, conditional);
        }
    }

    void load(const Expr* e, Level& level) {
        if (e == nullptr) return;
        if (e->kind == ExprKind::kName || e->kind == ExprKind::kNamespaceRef) level.load(e->name);
        for (const Expr* part : {e->a, e->b, e->c}) load(part, level);
        for (const Expr* item : e->items) load(item, level);
        if (e->call == nullptr) return;
        for (const Expr* value : e->call->positional) load(value, level);
        for (const auto& [name, value] : e->call->named) load(value, level);
        load(e->call->star, level);
        load(e->call->double_star, level);
    }

    void store(const Expr& target, Level& level, bool conditional) {
        if (target.kind == ExprKind::kName) level.store(target.name, conditional);
        if (target.kind == ExprKind::kNamespaceRef) level.load(target.name);
        for (const Expr* item : target.items) store(*item, level, conditional);
    }

    // Names that are set when a level begins: loop targets, parameters.
    void declare(const Expr& target, Level& level) {
        if (target.kind == ExprKind::kName) level.names.insert(target.name);
        for (const Expr* item : target.items) declare(*item, level);
    }

    std::vector<NameId> analyse_level(Level& level, const Block& body) {
        visit_block(body, level, false);
        analyse_inside(body, level);
        return level.unset;
    }

    void analyse_inside(const Block& block, const Level& outer) {
        for (Stmt* stmt : block) analyse_inside(*stmt, outer);
    }

    void analyse_inside(Stmt& stmt, const Level& outer) {
        for (const Branch& branch : stmt.branches) analyse_inside(branch.body, outer);
        Level level{&outer, {}, {}};
        switch (stmt.kind) {
            case StmtKind::kFor: {
                declare(*stmt.target, level);
                stmt.unset = analyse_level(level, stmt.body);
                Level otherwise{&outer, {}, {}};
                stmt.otherwise_unset = analyse_level(otherwise, stmt.otherwise);
                return;
            }
            case StmtKind::kMacro:
            case StmtKind::kCall:
                for (const MacroDef::Parameter& parameter : stmt.macro->parameters) {
                    level.names.insert(parameter.id);
                    load(parameter.fallback, level);
                }
                stmt.macro->unset = analyse_level(level, stmt.macro->body);
                return;
            case StmtKind::kWith:
                for (const auto& [target, value] : stmt.withs) declare(*target, level);
                break;
            case StmtKind::kSetBlock:
            case StmtKind::kFilterBlock:
            case StmtKind::kGeneration:
                break;
            default:
                return;
        }
        stmt.unset = analyse_level(level, stmt.body);
    }
};

}  // namespace

void find_unset_names(Program& program) {
    ScopeFinder().analyse(program);
}

}  // namespace ridge::jinja
