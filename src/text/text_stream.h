#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ridge {

// Turns the bytes of tokens, which may end inside a character, into text that is always UTF-8.
// Bytes that cannot become a character are given as U+FFFD, one for each maximal ill-formed part.
class TextStream {
  public:
    std::string push(std::string_view bytes);  // what is complete by now
    std::string finish();                      // what was held, as one U+FFFD; else empty

  private:
    std::string held_;  // the start of a character: at most 3 bytes
};

// Lets text through until one of the stop strings has occurred in it. Text that may be the start
// of one is held. Of stop strings that end at the same place the longest counts. Takes time linear
// in the text, whatever the stop strings (Aho and Corasick 1975).
class StopMatcher {
  public:
    explicit StopMatcher(std::vector<std::string> stops);  // Error where one is empty

    std::string push(std::string_view text);  // what is safe to show; empty once stopped
    std::string finish();                     // what was held; the answer has ended
    bool stopped() const { return stop_ >= 0; }
    const std::string& stop() const { return stops_[static_cast<size_t>(stop_)]; }  // stopped()

  private:
    struct Node {
        int depth = 0;     // bytes of stop strings that lead here
        int fallback = 0;  // the node of the longest proper suffix
        int stop = -1;     // the longest stop string that ends here
    };
    int child(int node, char byte) const;  // -1: none
    void add_fallbacks();

    std::vector<std::string> stops_;
    std::vector<Node> nodes_;
    std::unordered_map<uint64_t, int> children_;  // node * 256 + byte -> node
    int node_ = 0;
    std::string held_;  // the bytes that lead to node_
    int stop_ = -1;
};

}  // namespace ridge
