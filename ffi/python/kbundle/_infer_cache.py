"""What kb_infer said, kept until the policy changes: the workspace depends on what is forced and denied."""

from kbundle._policy import generation

_MOST = 8192


class InferCache:
    """Of one bundle. Safe from any thread, without a lock that a fork could leave taken: an answer that two threads miss
    is asked for twice."""

    def __init__(self, infer):
        self._infer = infer
        self._state = None, {}  # the policy's generation, and what was said under it

    def get(self, *request):
        """infer(*request); the request hashes."""
        now = generation()
        of, answers = self._state
        if of != now or len(answers) >= _MOST:
            answers = {}
            self._state = now, answers
        found = answers.get(request)
        if found is None:
            found = answers[request] = self._infer(*request)
        return found
