from typing import Any

class Node:
    id: Any
    def __init__(self, id: object) -> None: ...
