#include "text/text_stream.h"

#include <utility>

#include "base/error.h"
#include "base/utf8.h"

namespace ridge {

std::string TextStream::push(std::string_view bytes) {
    std::string joined = std::move(held_);
    held_.clear();
    joined += bytes;
    std::string text;
    text.reserve(joined.size());
    for (size_t at = 0; at < joined.size();) {
        std::string_view rest = std::string_view(joined).substr(at);
        Utf8Char c = decode_utf8(rest);
        if (c.truncated) {
            held_ = rest;
            break;
        }
        append_utf8(text, c.code);
        at += c.n_bytes;
    }
    return text;
}

std::string TextStream::finish() {
    bool incomplete = !held_.empty();
    held_.clear();
    return incomplete ? "\xef\xbf\xbd" : "";
}

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)), nodes_(1) {
    for (size_t i = 0; i < stops_.size(); i++) {
        if (stops_[i].empty()) throw Error(ErrorKind::kUsage, "a stop string is empty");
        int node = 0;
        for (char c : stops_[i]) {
            uint64_t edge = static_cast<uint64_t>(node) * 256 + static_cast<unsigned char>(c);
            auto [it, inserted] = children_.emplace(edge, static_cast<int>(nodes_.size()));
            int depth = nodes_[static_cast<size_t>(node)].depth + 1;
            if (inserted) nodes_.push_back({.depth = depth});
            node = it->second;
        }
        nodes_[static_cast<size_t>(node)].stop = static_cast<int>(i);
    }
    add_fallbacks();
}

int StopMatcher::child(int node, char byte) const {
    auto found =
        children_.find(static_cast<uint64_t>(node) * 256 + static_cast<unsigned char>(byte));
    return found == children_.end() ? -1 : found->second;
}

// Each stop string is followed from its start, so that the fallback of a node is that of its parent
// continued by its byte. Fallbacks are shorter than their nodes, so nodes go by depth.
void StopMatcher::add_fallbacks() {
    struct Edge {
        int parent, node;
        char byte;
    };
    std::vector<std::vector<Edge>> by_depth;
    for (const auto& [edge, node] : children_) {
        size_t depth = static_cast<size_t>(nodes_[static_cast<size_t>(node)].depth);
        if (by_depth.size() <= depth) by_depth.resize(depth + 1);
        by_depth[depth].push_back(
            {static_cast<int>(edge >> 8), node, static_cast<char>(edge & 0xff)});
    }
    for (const std::vector<Edge>& edges : by_depth) {
        for (const Edge& edge : edges) {
            Node& node = nodes_[static_cast<size_t>(edge.node)];
            int from = edge.parent;
            while (from != 0) {
                from = nodes_[static_cast<size_t>(from)].fallback;
                int next = child(from, edge.byte);
                if (next >= 0) {
                    node.fallback = next;
                    break;
                }
            }
            if (node.stop < 0) node.stop = nodes_[static_cast<size_t>(node.fallback)].stop;
        }
    }
}

std::string StopMatcher::push(std::string_view text) {
    std::string shown;
    if (stopped()) return shown;
    for (char c : text) {
        held_ += c;
        int next = child(node_, c);
        while (next < 0 && node_ != 0) {
            node_ = nodes_[static_cast<size_t>(node_)].fallback;
            next = child(node_, c);
        }
        node_ = next < 0 ? 0 : next;
        if (int stop = nodes_[static_cast<size_t>(node_)].stop; stop >= 0) {
            stop_ = stop;
            held_.resize(held_.size() - stops_[static_cast<size_t>(stop)].size());
            shown += held_;
            held_.clear();
            return shown;
        }
    }
    size_t n_held = static_cast<size_t>(nodes_[static_cast<size_t>(node_)].depth);
    shown = held_.substr(0, held_.size() - n_held);
    held_.erase(0, held_.size() - n_held);
    return shown;
}

std::string StopMatcher::finish() {
    node_ = 0;
    return std::exchange(held_, {});
}

}  // namespace ridge
